# SPDX-License-Identifier: MIT
"""The units of functions by name: .debug_names (DWARF 5, section 6.1.1), which pyelftools does not
read. Link editors put the tables of several units behind one another, gdb and others make one.

    length 4|12, version 2, padding 2, 7 counts of 4, augmentation; units 4|8 each, type units,
    foreign type units 8 each; buckets 4 each, hashes 4 each; places of names in .debug_str, of
    entries; abbreviations, entries

It is a hint: of a damaged one nothing is told, or what is wrong. Whoever asks looks into the units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["NamesIndex"]

VERSION = 5
LONG = 0xFFFFFFFF
"""The length that the 8 bytes behind it replace, in 64-bit DWARF."""
COUNTS = 7
UNIT = 1
"""DW_IDX_compile_unit."""
FIXED = {0x0B: 1, 0x05: 2, 0x06: 4, 0x07: 8, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x19: 0}
"""Bytes of DW_FORM_data*, DW_FORM_flag, DW_FORM_ref* and DW_FORM_flag_present."""
LEBS = {0x0F, 0x15, 0x0D}
"""DW_FORM_udata, DW_FORM_ref_udata and DW_FORM_sdata."""
FUNCTION = 0x2E
"""DW_TAG_subprogram."""
MAX_ENTRIES = 1 << 10
"""Of one name."""


@dataclass(frozen=True, kw_only=True)
class _Table:
    """One table: its sections by where they begin in ``.debug_names`` (bytes), and how many of each
    there are; ``wide``: bytes of an offset."""

    units: int
    unit_count: int
    buckets: int
    bucket_count: int
    hashes: int
    name_count: int
    strings: int
    places: int
    abbreviations: int
    entries: int
    end: int
    wide: int


class NamesIndex:
    """The tables of ``raw``; ``text``: a text in .debug_str by its offset."""

    def __init__(self, raw: bytes, text: Callable[[int], bytes | None], *, little: bool) -> None:
        self._raw, self._text = raw, text
        self._order, self._mark = ("little", "<") if little else ("big", ">")
        self._tables = list(self._read())

    def units_of(self, name: str) -> set[int]:
        """Offsets of the units that have a function of this name."""
        key, wanted = name.encode("utf-8", "surrogateescape"), _hash(name)
        found = set[int]()
        for table in self._tables:
            try:
                for row in self._rows(table, wanted):
                    place = table.strings + row * table.wide
                    if self._text(self._int(place, table.wide)) == key:
                        found.update(self._units(table, row))
            except (ValueError, IndexError):
                continue
        return found

    def _read(self) -> Iterator[_Table]:
        at, size = 0, len(self._raw)
        while at + 36 <= size:
            length, wide, head = self._int(at, 4), 4, at + 4
            if length == LONG:
                length, wide, head = self._int(head, 8), 8, head + 8
            end = head + length
            if end > size or self._int(head, 2) != VERSION:
                return
            counts = [self._int(head + 4 + 4 * n, 4) for n in range(COUNTS)]
            units, types, foreign, buckets, names, abbreviations, augmentation = counts
            parts = [head + 4 + 4 * COUNTS + (augmentation + 3 & ~3)]
            held = (units * wide, types * wide, foreign * 8, buckets * 4, names * 4 * bool(buckets))
            for one in (*held, names * wide, names * wide, abbreviations):
                parts.append(parts[-1] + one)
            if parts[-1] > end:
                return
            yield _Table(
                units=parts[0],
                unit_count=units,
                buckets=parts[3],
                bucket_count=buckets,
                hashes=parts[4],
                name_count=names,
                strings=parts[5],
                places=parts[6],
                abbreviations=parts[7],
                entries=parts[8],
                end=end,
                wide=wide,
            )
            at = end

    def _rows(self, table: _Table, wanted: int) -> list[int]:
        """The rows of names with a hash; all, in a table without hashes."""
        if not table.bucket_count:
            return list(range(table.name_count))
        first = self._int(table.buckets + 4 * (wanted % table.bucket_count), 4) - 1
        if not 0 <= first < table.name_count:
            return []
        hashes = np.frombuffer(
            self._raw, f"{self._mark}u4", table.name_count - first, table.hashes + 4 * first
        )
        out = []
        for row, held in enumerate(hashes, first):
            if int(held) % table.bucket_count != wanted % table.bucket_count:
                break
            if int(held) == wanted:
                out.append(row)
        return out

    def _units(self, table: _Table, row: int) -> Iterator[int]:
        """The units of the functions among a name's entries."""
        at = table.entries + self._int(table.places + row * table.wide, table.wide)
        for _ in range(MAX_ENTRIES):
            code, at = self._number(at, table.end)
            if not code:
                return
            tag, forms = self._abbreviation(table, code)
            unit = 0 if table.unit_count == 1 else -1
            for what, form in forms:
                if form in LEBS:
                    value, at = self._number(at, table.end)
                else:
                    size = FIXED[form] if form in FIXED else self._refuse()
                    value, at = self._int(at, size), at + size
                if what == UNIT:
                    unit = value
            if at > table.end:
                self._refuse()
            if tag == FUNCTION and 0 <= unit < table.unit_count:
                yield self._int(table.units + unit * table.wide, table.wide)

    def _abbreviation(self, table: _Table, wanted: int) -> tuple[int, list[tuple[int, int]]]:
        """The tag of entries with this code, and what they hold, in which forms."""
        at = table.abbreviations
        while True:
            code, at = self._number(at, table.entries)
            if not code:
                self._refuse()
            tag, at = self._number(at, table.entries)
            held: list[tuple[int, int]] = []
            while True:
                what, at = self._number(at, table.entries)
                form, at = self._number(at, table.entries)
                if not what and not form:
                    break
                held.append((what, form))
            if code == wanted:
                return tag, held

    def _int(self, at: int, size: int) -> int:
        return int.from_bytes(self._raw[at : at + size], self._order)  # type: ignore[arg-type]

    def _number(self, at: int, end: int) -> tuple[int, int]:
        """A number in ULEB128, and what is behind it. Raises ValueError where the part ends."""
        value = shift = 0
        while at < end:
            byte = self._raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise ValueError

    @staticmethod
    def _refuse() -> int:
        """Leave a damaged part."""
        raise ValueError


def _hash(name: str) -> int:
    """Bernstein's hash of a name without its case, as DWARF 5 has it (section 7.33)."""
    value = 5381
    for byte in name.lower().encode("utf-8", "surrogateescape"):
        value = value * 33 + byte & 0xFFFFFFFF
    return value
