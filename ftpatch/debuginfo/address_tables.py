# SPDX-License-Identifier: MIT
"""Tables of the address ranges of units: .debug_aranges (DWARF 5, section 6.1.2), and .gdb_index of
gdb, gold and lld (versions 7 to 9; gdb, "Index Section Format").

They are hints: of a damaged one nothing is told, or what is wrong. Whoever asks looks into the
units.

    .debug_aranges  length 4|12, version 2, unit 4|8, address_size 1, segment_size 1, padding,
                    (address, size)*, 0, 0
    .gdb_index      version 4, units 4, type units 4, addresses 4, symbols 4, ...
                    (unit 8, size 8)*, ..., (low 8, high 8, number of a unit 4)*
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["AddressTable", "aranges", "gdb_index"]

LONG = 0xFFFFFFFF
"""The length that the 8 bytes behind it replace, in 64-bit DWARF."""
ARANGES_VERSION = 2
GDB_VERSIONS = range(7, 10)
ENTRY = 20
"""Bytes of an entry of .gdb_index's address area."""


class AddressTable:
    """n ranges: ``begin``, ascending, and ``end``, link addresses; ``unit``, offsets in
    .debug_info; uint64[n]."""

    def __init__(self, rows: Sequence[tuple[int, int, int]] | NDArray[np.uint64]) -> None:
        """Of ``rows`` of these three numbers; what is no range is left out."""
        if not isinstance(rows, np.ndarray):
            rows = [row for row in rows if 0 <= row[0] < row[1] < 1 << 64]
        held = np.array(rows, np.uint64).reshape(-1, 3)
        held = held[held[:, 0] < held[:, 1]]
        held = held[np.argsort(held[:, 0], kind="stable")]
        self._begin, self._end, self._unit = np.ascontiguousarray(held.T)
        self._reach = np.maximum.accumulate(self._end)  # of all up to there

    def units_at(self, address: int) -> set[int]:
        """The units that a link address is in."""
        return set(self._unit[self._around(address)].tolist())

    def rows_at(self, address: int) -> list[tuple[int, int, int]]:
        """The ranges that it is in, with their units."""
        at = self._around(address)
        parts = (self._begin[at], self._end[at], self._unit[at])
        return list(zip(*(part.tolist() for part in parts), strict=True))

    def unit_at(self, address: int) -> int | None:
        """One of them, None if there is none: of the innermost range, and the first unit. Inline
        functions are described by many units, of which link editors keep one's code."""
        rows = self._around(address)
        if not len(rows):
            return None
        order = np.lexsort((self._unit[rows], self._end[rows] - self._begin[rows]))
        return int(self._unit[rows[order[0]]])

    def _around(self, address: int) -> NDArray[np.intp]:
        """The rows of the ranges that it is in."""
        at = np.uint64(address)
        first = int(np.searchsorted(self._reach, at, side="right"))
        last = int(np.searchsorted(self._begin, at, side="right"))
        return first + np.flatnonzero(self._end[first:last] > at)


def aranges(raw: bytes, *, little: bool) -> AddressTable:
    """Read .debug_aranges, up to what is damaged."""
    order, at, found = "<" if little else ">", 0, [np.empty((0, 3), np.uint64)]
    while at + 12 <= len(raw):
        length, wide = _int(raw, at, 4, little), 4
        head = at + 4
        if length == LONG:
            length, wide, head = _int(raw, head, 8, little), 8, head + 8
        end = head + length
        unit = _int(raw, head + 2, wide, little)
        sizes = raw[head + 2 + wide : head + 4 + wide]
        if end > len(raw) or sizes not in (b"\x04\0", b"\x08\0"):
            break
        if _int(raw, head, 2, little) != ARANGES_VERSION:
            break
        width = sizes[0]
        first = head + 4 + wide
        first += -(first - at) % (2 * width)
        count = max(0, end - first) // width & ~1
        pairs = np.frombuffer(raw, f"{order}u{width}", count, first) if count else np.empty(0)
        pairs = pairs.astype(np.uint64).reshape(-1, 2)
        rows = np.empty((len(pairs), 3), np.uint64)
        rows[:, 0], rows[:, 1], rows[:, 2] = pairs[:, 0], pairs[:, 0] + pairs[:, 1], unit
        found.append(rows)
        at = end
    return AddressTable(np.concatenate(found))


def gdb_index(raw: bytes) -> AddressTable:
    """Read .gdb_index, which is little-endian on all machines; nothing of other versions, or if its
    parts are not in order."""
    none = AddressTable(np.empty((0, 3), np.uint64))
    if len(raw) < ENTRY:
        return none
    version, units, types, area, symbols = np.frombuffer(raw, "<u4", 5).tolist()
    if version not in GDB_VERSIONS or not ENTRY < units <= types <= area <= symbols <= len(raw):
        return none
    offsets = np.frombuffer(raw, "<u8", (types - units) // 16 * 2, units)[::2]
    count = (symbols - area) // ENTRY
    held = np.frombuffer(raw, np.uint8, count * ENTRY, area).reshape(-1, ENTRY)
    numbers = np.ascontiguousarray(held[:, 16:]).view("<u4").ravel()
    known = numbers < len(offsets)  # others are of type units, which have no code
    rows = np.empty((int(known.sum()), 3), np.uint64)
    rows[:, :2] = np.ascontiguousarray(held[known, :16]).view("<u8")
    rows[:, 2] = offsets[numbers[known]]
    return AddressTable(rows)


def _int(raw: bytes, at: int, size: int, little: bool) -> int:
    return int.from_bytes(raw[at : at + size], "little" if little else "big")
