# SPDX-License-Identifier: MIT
"""An image's debug information: opened, and its units found by address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ftpatch.debuginfo.abbreviations import lazy_tables
from ftpatch.debuginfo.address_tables import AddressTable, aranges, gdb_index
from ftpatch.debuginfo.damage import DamagedError, damage
from ftpatch.debuginfo.debug_files import debug_file
from ftpatch.debuginfo.dies import DIE, number
from ftpatch.debuginfo.names_index import NamesIndex
from ftpatch.debuginfo.range_lists import listed_ranges
from ftpatch.elf.elf_file import Elf
from ftpatch.errors import FtpatchError, InputError

__all__ = ["DebugInfo"]

EXPANDED = 1 << 30
"""Maximum size of an unpacked section (bytes)."""
ARANGES, NAMES, GDB_INDEX = ".debug_aranges", ".debug_names", ".gdb_index"
LONG = 0xFFFFFFFF
"""The length that the 8 bytes behind it replace, in 64-bit DWARF."""
MAX_ALIKE = 16
"""Units with a function of one name that are asked; of more, all are."""


class DebugInfo:
    """The debug information of one image. ``dwarf`` is pyelftools' object. Raises InputError where
    it is missing or unreadable. ``named``: the symbols of the function at a link address, by which
    a table of names has it."""

    def __init__(self, path: Path) -> None:
        from elftools.elf.elffile import ELFFile

        self.path = path
        self.named: Callable[[int], Iterable[str]] = lambda _: ()
        self._stated: dict[int, AddressTable] = {}
        try:
            self._file = path.open("rb")
            elf = ELFFile(self._file)
            for section in elf.iter_sections():
                if not section.name.startswith(".debug"):
                    continue
                if section.name != NAMES and section.data_size > EXPANDED:
                    raise InputError(path, f"{section.name} has {section.data_size} bytes")
                end = section["sh_offset"] + section["sh_size"]
                outside = section["sh_type"] != "SHT_NOBITS" and end > elf.stream_len
                if outside and section.name not in (ARANGES, NAMES):
                    raise DamagedError("it ends behind the file's end", section.name)
            if not elf.has_dwarf_info():
                raise InputError(path, "no debug information", "compile it with -g")
            self.dwarf: Any = elf.get_dwarf_info(relocate_dwarf_sections=False)
            self.dwarf.get_abbrev_table = lazy_tables(self.dwarf)
            self._elf = elf
        except (OSError, InputError):
            raise
        except Exception as error:  # pyelftools has no common exception for malformed files
            raise self.unreadable(error) from None

    @classmethod
    def of(cls, elf: Elf, path: Path) -> DebugInfo:
        """The debug information of an image at ``path``, wherever it is. Raises InputError."""
        found = debug_file(elf, path)
        if found is None:
            raise InputError(path, "no debug information", "compile it with -g")
        return cls(found)

    def unit_at(self, address: int) -> int | None:
        """Offset of the unit that describes a link address; None if none does. Tables in the file
        are hints, which may be stale or damaged: a unit is asked itself, and all are where no table
        has it. Raises InputError."""
        if not 0 <= address < 1 << 64:
            return None
        with self.readable():
            for units in self._hints(address):
                rows = [row for unit in units for row in self._told(unit, address)]
                if rows:
                    return AddressTable(rows).unit_at(address)
            return self._whole.unit_at(address)

    def read_all(self) -> None:
        """Read the ranges of all units now, unless a table has them by address. Raises
        InputError."""
        if not self._tables:
            with self.readable():
                _ = self._whole

    def first_range(self, die: DIE) -> int | None:
        """The start of a DIE's first range; None if it has none."""
        return next((begin for begin, _ in self._ranges_of(die)), None)

    def locations(self, die: DIE) -> list[tuple[int, bytes]]:
        """The location expressions of what a DIE declares, and the addresses from which on they
        hold; 0 for one that always does."""
        from elftools.dwarf.locationlists import LocationParser

        held = die.attributes["DW_AT_location"]
        parser = LocationParser(self.dwarf.location_lists())
        found = parser.parse_from_attribute(held, die.cu["version"], die)
        if not isinstance(found, list):
            return [(0, bytes(found.loc_expr))] if found.loc_expr else []
        base, out = _base(die), []
        for one in found:
            if hasattr(one, "base_address"):
                base = one.base_address
            elif getattr(one, "loc_expr", None):
                begin = one.begin_offset + (0 if one.is_absolute else base)
                out.append((begin, bytes(one.loc_expr)))
        return out

    def location_at(self, die: DIE, name: str, address: int) -> tuple[bytes, bool] | None:
        """The expression of an attribute (DW_AT_location, DW_AT_frame_base) that holds at a link
        address, and whether it is told for that address; None if there is none."""
        from elftools.dwarf.locationlists import LocationParser

        held = die.attributes.get(name)
        if held is None:
            return None
        parser = LocationParser(self.dwarf.location_lists())
        found = parser.parse_from_attribute(held, die.cu["version"], die)
        if not isinstance(found, list):
            return bytes(found.loc_expr), False
        base = _base(die)
        for one in found:
            if hasattr(one, "base_address"):
                base = one.base_address
            elif hasattr(one, "loc_expr"):
                above = 0 if one.is_absolute else base
                if one.begin_offset + above <= address < one.end_offset + above:
                    return bytes(one.loc_expr), True
        return None

    def covers(self, die: DIE, address: int) -> bool:
        """Test whether a link address is in the code of a unit, a function or a block."""
        return any(begin <= address < end for begin, end in self._ranges_of(die))

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Raise InputError for what pyelftools raises, which has no common exception for malformed
        files."""
        try:
            yield
        except (OSError, FtpatchError):
            raise
        except Exception as error:
            raise self.unreadable(error) from None

    def unreadable(self, error: Exception) -> InputError:
        """The error for what pyelftools raised."""
        what = damage(error, getattr(self, "dwarf", None))
        return InputError(self.path, f"cannot read its debug information: {what}")

    def _hints(self, address: int) -> Iterator[set[int]]:
        """The units that each table in the file has for a link address."""
        tables = self._tables
        if ARANGES in tables:
            yield tables[ARANGES].units_at(address)
        if self._names is not None:
            found = set[int]()
            for name in self.named(address):
                found |= self._names.units_of(name)
            yield found if len(found) <= MAX_ALIKE else set()
        if GDB_INDEX in tables:
            yield tables[GDB_INDEX].units_at(address)

    def _told(self, unit: int, address: int) -> list[tuple[int, int, int]]:
        """The ranges that a unit states, as far as they have a link address; none of what only a
        table says is a unit, and of one that cannot be read."""
        if unit not in self._stated:
            try:
                known = unit in self._offsets
                held = self._ranges_of(self.dwarf.get_CU_at(unit).get_top_DIE()) if known else []
            except Exception:  # pyelftools has no common exception for malformed files
                held = []
            self._stated[unit] = AddressTable([(*one, unit) for one in held])
        return self._stated[unit].rows_at(address)

    @cached_property
    def _offsets(self) -> frozenset[int]:
        """Where units begin."""
        section = self.dwarf.debug_info_sec
        raw, out, at = section.stream.getbuffer(), list[int](), 0
        order: Any = "little" if self.dwarf.config.little_endian else "big"
        while at + 4 <= len(raw):
            out.append(at)
            length, at = int.from_bytes(raw[at : at + 4], order), at + 4
            if length == LONG:
                length, at = int.from_bytes(raw[at : at + 8], order), at + 8
            at += length
        return frozenset(out)

    @cached_property
    def _tables(self) -> dict[str, AddressTable]:
        """The tables of address ranges that the file has."""
        little = self.dwarf.config.little_endian
        out = {}
        if raw := self._section(ARANGES):
            out[ARANGES] = aranges(raw, little=little)
        if raw := self._section(GDB_INDEX):
            out[GDB_INDEX] = gdb_index(raw)
        return out

    @cached_property
    def _names(self) -> NamesIndex | None:
        """The table of names, if there is one."""
        raw = self._section(NAMES)
        if not raw or self.dwarf.debug_str_sec is None:
            return None
        text = self.dwarf.get_string_from_table
        return NamesIndex(raw, text, little=self.dwarf.config.little_endian)

    def _section(self, name: str) -> bytes:
        """What a section holds; nothing if it is not there, or damaged."""
        try:
            section = self._elf.get_section_by_name(name)
            if section is None or section["sh_type"] == "SHT_NOBITS":
                return b""
            end = section["sh_offset"] + section["sh_size"]
            if end > self._elf.stream_len or section.data_size > EXPANDED:
                return b""
            return bytes(section.data())
        except Exception:  # pyelftools has no common exception for malformed files
            return b""

    @cached_property
    def _whole(self) -> AddressTable:
        """The ranges that all units state."""
        return AddressTable(
            [
                (begin, end, unit.cu_offset)
                for unit in self.dwarf.iter_CUs()
                for begin, end in self._ranges_of(unit.get_top_DIE())
            ]
        )

    def _ranges_of(self, die: DIE) -> list[tuple[int, int]]:
        """Start and end of each range of a unit or a function."""
        held, dwarf = die.attributes, self.dwarf
        low = held["DW_AT_low_pc"].value if "DW_AT_low_pc" in held else 0
        if "DW_AT_ranges" in held and (dwarf.debug_ranges_sec or dwarf.debug_rnglists_sec):
            return listed_ranges(dwarf, die, _base(die))
        if "DW_AT_high_pc" in held:
            high = held["DW_AT_high_pc"]
            return [(low, high.value + (0 if high.form == "DW_FORM_addr" else low))]
        return []


def _base(die: DIE) -> int:
    """The address that those around a DIE count from."""
    return number(die.cu.get_top_DIE(), "DW_AT_low_pc", 0)
