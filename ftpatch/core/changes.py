# SPDX-License-Identifier: MIT
"""Changes to a file, or to memory, as columns.

A Change replaces ``width`` old bytes at an offset by as many new ones. It has a kind, and an
owner: the ip of the site for whose sake it is made. Changes of one owner stand or fall together.
The space says what offsets count; Changes of two spaces are never in one table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["NO_OWNER", "Changes", "Kind", "Space"]

NO_OWNER = 0xFFFF_FFFF_FFFF_FFFF
"""Owner of a Change that belongs to no site (a veneer, a header)."""


class Kind(IntEnum):
    """Kind of bytes that a Change writes. The numbers are part of the journal's format."""

    CODE = 0
    LITERAL = 1
    RECORD = 2
    RELOCATION = 3
    HEADER = 4
    PADDING = 5


class Space(IntEnum):
    """Kinds of offsets: of a file, or in memory."""

    FILE = 0
    """Offsets in a file."""
    MEMORY = 1
    """Addresses in the memory of a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """n Changes of at most k bytes each; bytes of a row from ``width`` on are zero.

    ``offset`` int64[n] (in ``space``), ``width`` uint16[n] (bytes), ``old`` and ``new``
    uint8[n, k], ``kind`` uint8[n], ``owner`` uint64[n] (virtual address of the site, or NO_OWNER).
    """

    offset: NDArray[np.int64]
    width: NDArray[np.uint16]
    old: NDArray[np.uint8]
    new: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    owner: NDArray[np.uint64]
    space: Space = Space.FILE

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def of(
        cls,
        kind: Kind,
        offset: NDArray[np.int64],
        old: NDArray[np.uint8],
        new: NDArray[np.uint8],
        owner: ArrayLike,
        width: NDArray[np.unsignedinteger] | None = None,
        *,
        space: Space = Space.FILE,
    ) -> Changes:
        """Changes of one kind; without ``width`` every row is as wide as its matrix."""
        n, k = old.shape
        size = np.full(n, k, np.uint16) if width is None else width.astype(np.uint16)
        beyond = np.arange(k) >= size[:, None]
        return cls(
            offset=offset.astype(np.int64),
            width=size,
            old=np.where(beyond, 0, old).astype(np.uint8),
            new=np.where(beyond, 0, new).astype(np.uint8),
            kind=np.full(n, kind, np.uint8),
            owner=np.broadcast_to(np.asarray(owner, np.uint64), (n,)),
            space=space,
        )

    @classmethod
    def concat(cls, parts: Iterable[Changes]) -> Changes:
        """All parts one after the other, widened to the widest. Raises ValueError where they are
        not of one space."""
        found = [part for part in parts if len(part)]
        spaces = {part.space for part in found} or {Space.FILE}
        if len(spaces) > 1:
            raise ValueError("Changes of two spaces")
        k = max((part.old.shape[1] for part in found), default=1)

        def wide(code: NDArray[np.uint8]) -> NDArray[np.uint8]:
            return np.pad(code, ((0, 0), (0, k - code.shape[1])))

        empty = np.empty((0, k), np.uint8)
        return cls(
            offset=np.concatenate([np.empty(0, np.int64), *(p.offset for p in found)]),
            width=np.concatenate([np.empty(0, np.uint16), *(p.width for p in found)]),
            old=np.concatenate([empty, *(wide(p.old) for p in found)]),
            new=np.concatenate([empty, *(wide(p.new) for p in found)]),
            kind=np.concatenate([np.empty(0, np.uint8), *(p.kind for p in found)]),
            owner=np.concatenate([np.empty(0, np.uint64), *(p.owner for p in found)]),
            space=spaces.pop(),
        )

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Changes:
        """The rows of a mask or an index."""
        return Changes(
            offset=self.offset[rows],
            width=self.width[rows],
            old=self.old[rows],
            new=self.new[rows],
            kind=self.kind[rows],
            owner=self.owner[rows],
            space=self.space,
        )

    def reverted(self) -> Changes:
        """The Changes that take these back."""
        return replace(self, old=self.new, new=self.old)

    def effective(self) -> Changes:
        """Without the rows that change nothing."""
        return self.take((self.old != self.new).any(axis=1))

    def ordered(self) -> Changes:
        """By offset."""
        return self.take(np.argsort(self.offset, kind="stable"))

    def spread(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Offset of every byte, int64[n, k], and which of them are within the width."""
        column = np.arange(self.old.shape[1])
        return self.offset[:, None] + column, column < self.width[:, None]

    def held(self, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Read each row's place in ``data``, uint8[size], the whole file: uint8[n, k]; a
        row that is not wholly inside is zero."""
        where, within = self.spread()
        inside = (self.offset >= 0) & (self.offset + self.width <= len(data))
        readable = within & inside[:, None]
        return np.where(readable, data[np.where(readable, where, 0)], np.uint8(0))

    def put(self, data: NDArray[np.uint8], *, old: bool = False, base: int = 0) -> None:
        """Write the new (or old) bytes of all rows into ``data``, which begins at offset base."""
        where, within = self.spread()
        data[where[within] - base] = (self.old if old else self.new)[within]
