# SPDX-License-Identifier: MIT
"""The exception index of 32-bit ARM, with the functions of a stub among those of the program.

    .ARM.exidx   (function, 1) | (function, word) | (function, entry of .ARM.extab) ...

Rows are sorted. Places are 31-bit distances from the word that has them (prel31); 1 says that a
function cannot be unwound, a word with bit 31 how it is.

Exception Handling ABI for the Arm Architecture, 6 "The exception index table".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import LITTLE, ByteOrder
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError

__all__ = ["IN_ROW", "continued", "index_size", "merged_index", "moved", "read_index"]

CANTUNWIND = 1
INLINE = 1 << 31
IN_ROW = 1 << 32
"""Added to a word that stands in the row itself, in place of an address."""
REACH = 1 << 30
"""Bytes either way that a prel31 reaches."""
Rows = NDArray[np.int64]


def read_index(data: NDArray[np.uint8], address: int, order: ByteOrder = LITTLE) -> Rows:
    """Parse an index at ``address`` with the bytes ``data``, uint8[m]: rows of a function's address
    and of its entry's in .ARM.extab, int64[n, 2]; in place of that a word that stands there, plus
    2**32."""
    words = order.unsigned(data[: len(data) // 8 * 8], 4).astype(np.int64).reshape(-1, 2)
    place = address + 4 * np.arange(words.size).reshape(-1, 2)
    there = place + ((words & 0x7FFF_FFFF) ^ REACH) - REACH
    held = (words[:, 1] == CANTUNWIND) | (words[:, 1] >= INLINE)
    return np.stack([there[:, 0], np.where(held, words[:, 1] + IN_ROW, there[:, 1])], axis=1)


def moved(rows: Rows, distance: int) -> Rows:
    """Rows of functions that are ``distance`` bytes further up, with their entries."""
    return rows + distance * (rows < IN_ROW)


def continued(elf: Elf, entry: int) -> Changes:
    """The Change by which the image's own index goes on: what is above its last function, of which
    link editors say that it cannot be unwound, has the .ARM.extab ``entry`` at this address.

    A static program's unwinder has the bounds of the index as the linker knew them
    (__exidx_start, __exidx_end), whatever the program headers say. Nothing for other images.
    Raises InputError if the distance overflows.
    """
    own, none = elf.segment(Segment.PT_ARM_EXIDX), Changes.concat([])
    if own is None or own.size < 8 or elf.segment(Segment.PT_INTERP):
        return none
    word, apart = own.size - 4, entry - (own.address + own.size - 4)
    old = elf.contents(own.offset + word, 4, ".ARM.exidx")
    if elf.order.integer(old) != CANTUNWIND:
        return none
    if not -REACH <= apart < REACH:
        raise InputError(elf.path, "its unwind information is out of range")
    new = np.frombuffer(elf.order.packed(apart & 0x7FFF_FFFF, 4), np.uint8)
    offset = np.array([own.offset + word])
    return Changes.of(Kind.HEADER, offset, old.reshape(1, 4), new.reshape(1, 4), NO_OWNER)


def index_size(elf: Elf, added: int) -> int:
    """Size of merged_index() with that many more rows."""
    own = elf.segment(Segment.PT_ARM_EXIDX)
    return (own.size if own else 0) + 8 * added


def merged_index(elf: Elf, added: Rows, address: int) -> bytes:
    """Build the index to be placed at ``address``: the image's own rows and the ``added``, as
    read_index() has them.

    Raises InputError if a distance overflows.
    """
    own = elf.segment(Segment.PT_ARM_EXIDX)
    rows = added
    if own is not None:
        held = elf.contents(own.offset, own.size, ".ARM.exidx")
        rows = np.concatenate([read_index(held, own.address, elf.order), added])
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    apart = rows - (address + 4 * np.arange(rows.size).reshape(-1, 2))
    inline = rows >= IN_ROW
    if (np.abs(apart[~inline]) >= REACH).any():
        raise InputError(elf.path, "its unwind information is out of range")
    words = np.where(inline, rows - IN_ROW, apart & 0x7FFF_FFFF)
    return elf.order.rows(words.reshape(-1), 4).tobytes()
