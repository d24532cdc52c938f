# SPDX-License-Identifier: MIT
"""An image's debug information: opened, and its units found by address."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from ftpatch.debuginfo.abbreviations import lazy_tables
from ftpatch.debuginfo.damage import DamagedError, damage
from ftpatch.debuginfo.debug_files import debug_file
from ftpatch.debuginfo.dies import DIE, number
from ftpatch.elf.elf_file import Elf
from ftpatch.errors import FtpatchError, InputError

__all__ = ["DebugInfo"]

EXPANDED = 1 << 30
"""Maximum size of an unpacked section (bytes)."""
Range = tuple[int, int, int]
"""Start, end and unit of an address range."""


class DebugInfo:
    """The debug information of one image. ``dwarf`` is pyelftools' object. Raises InputError where
    it is missing or unreadable."""

    def __init__(self, path: Path) -> None:
        from elftools.elf.elffile import ELFFile

        self._path = path
        try:
            self._file = path.open("rb")
            elf = ELFFile(self._file)
            for section in elf.iter_sections():
                if not section.name.startswith(".debug"):
                    continue
                if section.data_size > EXPANDED:
                    raise InputError(path, f"{section.name} has {section.data_size} bytes")
                end = section["sh_offset"] + section["sh_size"]
                if section["sh_type"] != "SHT_NOBITS" and end > elf.stream_len:
                    raise DamagedError("it ends behind the file's end", section.name)
            if not elf.has_dwarf_info():
                raise InputError(path, "no debug information", "compile it with -g")
            self.dwarf: Any = elf.get_dwarf_info(relocate_dwarf_sections=False)
            self.dwarf.get_abbrev_table = lazy_tables(self.dwarf)
            self._listed = sorted(self._aranges())
            self._units = self._listed or sorted(self._ranges())
        except (OSError, InputError):
            raise
        except Exception as error:  # pyelftools has no common exception for malformed files
            raise self.unreadable(error) from None
        self._begins = [begin for begin, _, _ in self._units]

    @classmethod
    def of(cls, elf: Elf, path: Path) -> DebugInfo:
        """The debug information of an image at ``path``, wherever it is. Raises InputError."""
        found = debug_file(elf, path)
        if found is None:
            raise InputError(path, "no debug information", "compile it with -g")
        return cls(found)

    def unit_at(self, address: int) -> int | None:
        """Offset of the unit that describes a link address; None if none does."""
        index = bisect.bisect_right(self._begins, address) - 1
        if index < 0 or address >= self._units[index][1]:
            return None
        return self._units[index][2]

    def any_unit_at(self, address: int) -> int | None:
        """The same, also of units that the table of address ranges leaves out, as clang's."""
        found = self.unit_at(address)
        if found is not None or not self._listed:
            return found
        return next((unit for begin, end, unit in self._unlisted if begin <= address < end), None)

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
        return InputError(self._path, f"cannot read its debug information: {what}")

    @cached_property
    def _unlisted(self) -> list[Range]:
        listed = {unit for _, _, unit in self._listed}
        return [one for one in self._ranges() if one[2] not in listed]

    def _aranges(self) -> list[Range]:
        table = self.dwarf.get_aranges()
        entries = table.entries if table is not None else ()
        return [(e.begin_addr, e.begin_addr + e.length, e.info_offset) for e in entries]

    def _ranges(self) -> Iterator[Range]:
        """The ranges that the units themselves state."""
        for unit in self.dwarf.iter_CUs():
            for begin, end in self._ranges_of(unit.get_top_DIE()):
                yield begin, end, unit.cu_offset

    def _ranges_of(self, die: DIE) -> Iterator[tuple[int, int]]:
        """Start and end of each range of a unit or a function."""
        held, lists = die.attributes, self.dwarf.range_lists()
        low = held["DW_AT_low_pc"].value if "DW_AT_low_pc" in held else 0
        if "DW_AT_ranges" in held and lists is not None:
            base = _base(die)
            for entry in lists.get_range_list_at_offset(held["DW_AT_ranges"].value, die.cu):
                if hasattr(entry, "base_address"):
                    base = entry.base_address
                    continue
                begin = 0 if entry.is_absolute else base
                yield begin + entry.begin_offset, begin + entry.end_offset
        elif "DW_AT_high_pc" in held:
            high = held["DW_AT_high_pc"]
            yield low, high.value + (0 if high.form == "DW_FORM_addr" else low)


def _base(die: DIE) -> int:
    """The address that those around a DIE count from."""
    return number(die.cu.get_top_DIE(), "DW_AT_low_pc", 0)
