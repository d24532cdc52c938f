# SPDX-License-Identifier: MIT
"""Variables of any unit, by their addresses.

No table of debug information has the addresses of data. They are looked for in the bytes of what
tells locations: DW_OP_addr is followed by an address, DW_OP_addrx by the number of one in the
unit's part of .debug_addr (DWARF 5, section 2.5.1.1). Only units that have it are read.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ftpatch.debuginfo.debug_info import DebugInfo
from ftpatch.debuginfo.declarations import INNER, SCOPES
from ftpatch.debuginfo.dies import DIE, number
from ftpatch.debuginfo.scanning import entries
from ftpatch.debuginfo.source_scopes import source_name

__all__ = ["SourceVariables"]

ADDR, ADDRX = 0x03, {0xA1, 0xFB}
"""DW_OP_addr; DW_OP_addrx and DW_OP_GNU_addr_index."""


class SourceVariables:
    """The global and static variables of an image. Pyelftools' errors are the caller's to catch."""

    def __init__(self, info: DebugInfo) -> None:
        self._info, self._dwarf = info, info.dwarf

    def at(self, address: int, name: str) -> DIE | None:
        """The variable at a link address, the one called ``name`` if several are; None if there is
        none."""
        found = None
        for unit in self._units(address):
            top = self._dwarf.get_CU_at(unit).get_top_DIE()
            for scopes in (SCOPES, INNER):  # those of functions are read only if nothing else is it
                for die in entries(top, "DW_TAG_variable", scopes, {"DW_AT_location"}):
                    if self._address(die) == address:
                        found = found or die
                        if source_name(die) == name:
                            return die
        return found

    def _address(self, die: DIE) -> int | None:
        """Where a variable is, if that is always the same."""
        held = die.attributes.get("DW_AT_location")
        raw = bytes(held.value) if held is not None and isinstance(held.value, list) else b""
        if raw[:1] == bytes([ADDR]) and len(raw) == 1 + self._width:
            return int.from_bytes(raw[1:], self._order)
        if raw and raw[0] in ADDRX:
            from elftools.dwarf.dwarf_expr import DWARFExprParser

            words = DWARFExprParser(die.cu.structs).parse_expr(raw)
            return int(self._dwarf.get_addr(die.cu, *words[0].args)) if len(words) == 1 else None
        return None

    def _units(self, address: int) -> list[int]:
        """Offsets of the units that have an address in a location, ascending."""
        raw = address.to_bytes(self._width, self._order)
        found = set[int]()
        for at in _places(self._dwarf.debug_info_sec, bytes([ADDR]) + raw):
            found.add(self._offsets[bisect.bisect_right(self._offsets, at) - 1])
        for at in _places(self._dwarf.debug_addr_sec, raw):
            bases = self._bases
            base = max((one for one in bases if one <= at), default=None)
            found.update(bases[base] if base is not None else ())
        return sorted(found)

    @cached_property
    def _offsets(self) -> list[int]:
        return [unit.cu_offset for unit in self._dwarf.iter_CUs()]

    @cached_property
    def _bases(self) -> dict[int, list[int]]:
        """The units by where their parts of .debug_addr begin."""
        out: dict[int, list[int]] = {}
        for unit in self._dwarf.iter_CUs():
            top = unit.get_top_DIE()
            for name in ("DW_AT_addr_base", "DW_AT_GNU_addr_base"):
                if name in top.attributes:
                    out.setdefault(number(top, name, 0), []).append(unit.cu_offset)
        return out

    @cached_property
    def _width(self) -> int:
        return int(self._dwarf.config.default_address_size)

    @cached_property
    def _order(self) -> Any:  # noqa: ANN401 - "little" or "big"
        return "little" if self._dwarf.config.little_endian else "big"


def _places(section: Any, raw: bytes) -> Iterator[int]:  # noqa: ANN401 - of pyelftools
    """Where a section has these bytes; nowhere if it is None."""
    if section is not None:
        for found in re.finditer(re.escape(raw), section.stream.getbuffer(), re.DOTALL):
            yield found.start()
