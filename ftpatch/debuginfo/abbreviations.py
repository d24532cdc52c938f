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
IMPLICIT = b"\x21"
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
        self._raw: dict[int, bytes] = {}
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

    def declared(self, code: int) -> tuple[int, bool, list[tuple[int, int]]]:
        """The tag that a code stands for, whether such entries have children, and the names and
        forms of their attributes, as numbers. Raises DamagedError if there is none."""
        self._place(code)
        tag, at = _leb(self._raw[code], 0)
        has_children, at = bool(self._raw[code][at]), at + 1
        out: list[tuple[int, int]] = []
        while True:
            name, at = _leb(self._raw[code], at)
            form, at = _leb(self._raw[code], at)
            if form == IMPLICIT[0]:
                _, at = _leb(self._raw[code], at)
            if not name and not form:
                return tag, has_children, out
            out.append((name, form))

    def _place(self, code: int) -> int:
        """Where a declaration begins behind its code."""
        raw = self._stream.getbuffer()
        while code not in self._places:
            found = _DECLARATION.match(raw, self._next)
            read = _number(found[1]) if found else 0
            if found is None or not read:
                raise DamagedError(f"no abbreviation {code} in its unit's table")
            self._places[read], self._raw[read] = found.start(2), found[2]
            self._next = found.end()
        return self._places[code]


def _number(raw: bytes) -> int:
    """A number in ULEB128."""
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw[:10]))


def _leb(raw: bytes, at: int) -> tuple[int, int]:
    """A number in ULEB128, and what is behind it. Raises DamagedError."""
    value = shift = 0
    while at < len(raw):
        byte = raw[at]
        at, value = at + 1, value | (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DamagedError("a declaration that ends within a number", ".debug_abbrev")


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
