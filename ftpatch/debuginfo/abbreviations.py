# SPDX-License-Identifier: MIT
"""Abbreviation tables (DWARF 5, section 7.5.3), of which only what is asked for is parsed.

Pyelftools parses a unit's whole table before its first DIE. Where all units are looked through, as
for the files that they were compiled from, that first one is all that is wanted of most of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ftpatch.debuginfo.damage import DamagedError

__all__ = ["lazy_tables"]

_LEB = rb"[\x80-\xff]*[\x00-\x7f]"
IMPLICIT = rb"\x21"
"""DW_FORM_implicit_const, which a number follows."""
_DECLARATION = re.compile(
    rb"(%b)(%b[\x00\x01](?:(?!\x00\x00)%b(?:%b%b|(?!%b)%b))*\x00\x00)"
    % (_LEB, _LEB, _LEB, IMPLICIT, _LEB, IMPLICIT, _LEB)
)


class _Table:
    """What pyelftools' AbbrevTable is to a DIE."""

    def __init__(self, structs: Any, stream: Any, offset: int) -> None:  # noqa: ANN401
        self._structs, self._stream, self._next = structs, stream, offset
        self._places: dict[int, int] = {}
        self._known: dict[int, Any] = {}

    def get_abbrev(self, code: int) -> Any:  # noqa: ANN401 - an AbbrevDecl
        """The declaration of a code. Raises DamagedError if there is none."""
        from elftools.common.utils import struct_parse
        from elftools.dwarf.abbrevtable import AbbrevDecl

        if code not in self._known:
            form = self._structs.Dwarf_abbrev_declaration
            held = struct_parse(form, self._stream, self._place(code))
            self._known[code] = AbbrevDecl(code, held)
        return self._known[code]

    def _place(self, code: int) -> int:
        """Where a declaration begins behind its code."""
        raw = self._stream.getbuffer()
        while code not in self._places:
            found = _DECLARATION.match(raw, self._next)
            read = _number(found[1]) if found else 0
            if found is None or not read:
                raise DamagedError(f"no abbreviation {code} in its unit's table")
            self._places[read] = found.start(2)
            self._next = found.end()
        return self._places[code]


def _number(raw: bytes) -> int:
    """A number in ULEB128."""
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw[:10]))


def lazy_tables(dwarf: Any) -> Callable[[int], _Table]:  # noqa: ANN401 - pyelftools' DWARFInfo
    """The tables of debug information by their offsets in .debug_abbrev."""
    known: dict[int, _Table] = {}

    def table(offset: int) -> _Table:
        if offset not in known:
            section = dwarf.debug_abbrev_sec
            if section is None or not 0 <= offset < section.size:
                what = f"no abbreviation table at {offset:#x} of .debug_abbrev"
                raise DamagedError(what)
            known[offset] = _Table(dwarf.structs, section.stream, offset)
        return known[offset]

    return table
