# SPDX-License-Identifier: MIT
"""A dynamic table with other entries, in the room that the linker left behind the last one.

    NEEDED libz.so.1    ->   NEEDED $ORIGIN/shop.probed.libs/libz.so.1
    NEEDED libc.so.6         NEEDED libz.so.1
    INIT ...                 INIT ...
    NULL                     NEEDED libc.so.6
    NULL                     NULL

A string's value is an offset from DT_STRTAB. New ones are in the inserted segment, at whatever
distance: dynamic linkers ignore DT_STRSZ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.image import Image

__all__ = ["DynamicEntries", "Entry", "packed_entries"]

Entry = tuple[int, int | bytes]
"""d_tag, and d_val or a new string."""


class DynamicEntries:
    """The ``entries`` that an image's dynamic table is to have, all of them in order; ``strings``
    are to be inserted."""

    def __init__(self, image: Image, entries: Sequence[Entry]) -> None:
        """Raises InputError for a table without room for them, or without strings."""
        segment = image.elf.segment(Segment.PT_DYNAMIC)
        start = dynamic_tags(image.elf).get(Tag.STRTAB)
        if segment is None or start is None:
            raise InputError(image.path, "its dynamic section has no string table")
        self._image, self._offset, self._start = image, segment.offset, start
        size = 2 * image.elf.word
        room = self.room(image)
        if len(entries) > room:
            reason = f"its dynamic table has room for {room} entries, not for {len(entries)}"
            raise InputError(image.path, reason)
        self._old = image.elf.contents(segment.offset, segment.size, "dynamic table")
        self._old = self._old[: len(self._old) // size * size].reshape(-1, size)
        self.strings = b"".join(value + b"\0" for _, value in entries if isinstance(value, bytes))
        self._entries = entries

    @staticmethod
    def room(image: Image) -> int:
        """Number of entries that an image's table has room for."""
        segment = image.elf.segment(Segment.PT_DYNAMIC)
        size = segment.size if segment else 0
        return max(size // (2 * image.elf.word) - 1, 0)  # behind them is DT_NULL

    def changes(self, address: int) -> Changes:
        """The Changes to the table, for strings at a link address."""
        new, at = self._old.copy(), address - self._start
        rows = list[tuple[int, int]]()
        for tag, value in self._entries:
            rows.append((tag, at if isinstance(value, bytes) else value))
            at += len(value) + 1 if isinstance(value, bytes) else 0
        new[: len(rows)] = self._packed(rows)
        new[len(rows)] = 0
        differs = np.flatnonzero((new != self._old).any(axis=1))
        offset = self._offset + differs.astype(np.int64) * new.shape[1]
        return Changes.of(Kind.HEADER, offset, self._old[differs], new[differs], NO_OWNER)

    def _packed(self, rows: Sequence[tuple[int, int]]) -> NDArray[np.uint8]:
        packed = packed_entries(rows, self._image.elf)
        return np.frombuffer(packed, np.uint8).reshape(len(rows), -1)


def packed_entries(rows: Sequence[tuple[int, int]], elf: Elf) -> bytes:
    """The bytes of entries, each d_tag and d_val, of a file like this one."""
    word, order = elf.word, elf.order
    return b"".join(order.packed(n % (1 << 8 * word), word) for row in rows for n in row)
