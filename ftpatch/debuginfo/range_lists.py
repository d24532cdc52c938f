# SPDX-License-Identifier: MIT
"""Range lists of .debug_ranges and .debug_rnglists (DWARF 4, section 2.17.3; DWARF 5, 7.25).

Pyelftools takes 30 us for an entry, and units of C++ have hundreds: these are decoded here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ftpatch.debuginfo.damage import DamagedError
from ftpatch.debuginfo.dies import DIE, number

__all__ = ["listed_ranges"]

END, BASEX, STARTX_ENDX, STARTX_LENGTH, OFFSETS, BASE, START_END, START_LENGTH = range(8)
"""DW_RLE_*."""
LATE = 5
"""The version of DWARF from which on lists are in .debug_rnglists."""


def listed_ranges(dwarf: Any, die: DIE, base: int) -> list[tuple[int, int]]:  # noqa: ANN401
    """Start and end of each range in a DIE's list, whose offsets count from ``base``. Raises
    DamagedError."""
    unit, at = die.cu, number(die, "DW_AT_ranges", 0)
    late = unit["version"] >= LATE
    section = dwarf.debug_rnglists_sec if late else dwarf.debug_ranges_sec
    name = ".debug_rnglists" if late else ".debug_ranges"
    if section is None:
        raise DamagedError("it has no range lists", name)
    reader = _Reader(dwarf, unit, section.stream.getbuffer(), at)
    try:
        return list(reader.entries(base) if late else reader.pairs(base))
    except IndexError:
        raise DamagedError("it ends within a value", name) from None


class _Reader:
    """A place in a section. Raises IndexError where that ends."""

    def __init__(self, dwarf: Any, unit: Any, raw: memoryview, at: int) -> None:  # noqa: ANN401
        self._dwarf, self._unit, self._raw, self._at = dwarf, unit, raw, at
        self._width = int(unit["address_size"])
        self._little = dwarf.config.little_endian

    def pairs(self, base: int) -> Iterator[tuple[int, int]]:
        """The ranges of a list before DWARF 5."""
        highest = (1 << 8 * self._width) - 1
        while True:
            begin, end = self._address(), self._address()
            if begin == highest:
                base = end
            elif begin or end:
                yield base + begin, base + end
            else:
                return

    def entries(self, base: int) -> Iterator[tuple[int, int]]:
        """The ranges of a list since DWARF 5. Raises DamagedError."""
        while (kind := self._raw[self._step(1)]) != END:
            if kind == OFFSETS:
                yield base + self._number(), base + self._number()
            elif kind == STARTX_LENGTH:
                begin = self._indexed()
                yield begin, begin + self._number()
            elif kind == STARTX_ENDX:
                yield self._indexed(), self._indexed()
            elif kind == START_LENGTH:
                begin = self._address()
                yield begin, begin + self._number()
            elif kind == START_END:
                yield self._address(), self._address()
            elif kind == BASEX:
                base = self._indexed()
            elif kind == BASE:
                base = self._address()
            else:
                raise DamagedError(f"an unknown kind of range {kind:#x}", ".debug_rnglists")

    def _step(self, size: int) -> int:
        """Where this value begins; the next one is behind it."""
        at = self._at
        self._at = at + size
        if not 0 <= at <= len(self._raw) - size:
            raise IndexError
        return at

    def _address(self) -> int:
        at = self._step(self._width)
        order = "little" if self._little else "big"
        return int.from_bytes(self._raw[at : at + self._width], order)  # type: ignore[arg-type]

    def _number(self) -> int:
        """A number in ULEB128."""
        value = shift = 0
        while True:
            byte = self._raw[self._step(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _indexed(self) -> int:
        """An address by its number in the unit's part of .debug_addr."""
        return int(self._dwarf.get_addr(self._unit, self._number()))
