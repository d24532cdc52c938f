# SPDX-License-Identifier: MIT
"""Damaged debug information: what is wrong with it, and where.

Pyelftools raises what its parsers, and Python, happen to raise: "expected 4, found 1", KeyError(5).
The frames of such an error tell what was being read: a section's stream, or an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["DamagedError", "damage"]

SECTIONS = (
    "info", "abbrev", "frame", "str", "loc", "ranges", "line", "addr", "str_offsets", "line_str",
    "loclists", "rnglists", "sup", "types",
)  # fmt: skip
SHORT = re.compile(r"expected \d+, found \d+|unexpected end|missing terminator|EOF")
REFERENCE = re.compile(r"refaddr (\d+) not in DIE range of CU (\d+)|offset (\d+) beyond")
VERSION = re.compile(r"version|DWARF\S* \d", re.IGNORECASE)
MISSING = re.compile(r"needs (DW_AT_\w+)")
CODE = re.compile(r"no decoding mapping for (\d+)(?: \[(\w+)\])?")
MAX_FORM = 1 << 16


class DamagedError(Exception):
    """A fault of debug information: ``what`` is wrong, a noun phrase; ``section``: where, if the
    frames of the error do not tell."""

    def __init__(self, what: str, section: str = "") -> None:
        self.what, self.section = what, section
        super().__init__(what)


def damage(error: Exception, dwarf: Any) -> str:  # noqa: ANN401 - pyelftools' DWARFInfo, or None
    """Section, offset and what is wrong there, for what was raised while debug information was
    read: ``.debug_info+0x1f4: no abbreviation 20 in its unit's table``."""
    section, offset, size = _place(error, dwarf) if dwarf is not None else ("", 0, 0)
    place = f"{section}+{offset:#x}" if section else ""
    if isinstance(error, DamagedError) and error.section not in ("", section):
        section, place, size = error.section, error.section, 0
    words = _words(error)
    if size and offset > size:
        words = f"it has only {size:#x} bytes"
    return f"{place}: {words}" if place else words


def _words(error: Exception) -> str:
    text = str(error)
    if isinstance(error, DamagedError):
        return error.what
    if isinstance(error, KeyError):
        key = error.args[0] if error.args else None
        is_form = isinstance(key, int) and key < MAX_FORM
        return f"an unknown code {key:#x}" if is_form else "an unknown code"
    if isinstance(error, RecursionError):
        return "entries that refer to one another without end"
    if isinstance(error, MemoryError | OverflowError):
        return "a number that is too big"
    if isinstance(error, UnicodeError):
        return "a text that is not UTF-8"
    if found := CODE.search(text):
        return f"an unknown {found[2] or 'code'} {int(found[1]):#x}"
    if SHORT.search(text):
        return "it ends within a value"
    if found := REFERENCE.search(text):
        return f"a reference to {int(found[1] or found[3]):#x}, where there is nothing"
    if type(error).__module__.startswith("elftools") and VERSION.search(text):
        return "a version that is not supported"
    if found := MISSING.search(text):
        return f"a unit without {found[1]}"
    if isinstance(error, AssertionError) and _has_odd_addresses(error):
        return "an address_size that is neither 4 nor 8"
    if isinstance(error, AttributeError | TypeError | LookupError):
        return "it refers to what is not there"
    return "malformed"


def _place(error: Exception, dwarf: Any) -> tuple[str, int, int]:  # noqa: ANN401
    """The section that was read last, the offset in it, and its size; no name if that is not
    known."""
    known = {
        id(held.stream): (f".debug_{name}", int(held.size))
        for name in SECTIONS
        if (held := getattr(dwarf, f"debug_{name}_sec", None)) is not None
    }
    info = known.get(id(getattr(dwarf.debug_info_sec, "stream", None)), (".debug_info", 0))
    for held in reversed(list(_held(error))):
        for one in held.values():
            if type(one).__name__ == "DIE" and isinstance(getattr(one, "offset", None), int):
                name, size = known.get(id(one.stream), info)
                return name, one.offset, size
        own = held.get("self")
        for one in (held.get("stream"), getattr(own, "stream", None)):
            if id(one) in known and one is not None:
                name, size = known[id(one)]
                return name, int(one.tell()), size
        if type(own).__name__ == "CompileUnit" and own is not None:
            return info[0], int(own.cu_offset), info[1]
        if own is dwarf and "cu_header" in held:
            return info[0], int(held.get("offset", 0)), info[1]
    return "", 0, 0


def _has_odd_addresses(error: Exception) -> bool:
    """Test whether a header's address_size was refused, which pyelftools asserts."""
    *_, held = _held(error)
    sizes = (held.get("address_size"), held.get("addr_header_value"))
    return any(isinstance(one, int) and one not in (4, 8) for one in sizes)


def _held(error: Exception) -> Iterator[dict[str, Any]]:
    """The variables of all functions that an error left, the innermost last."""
    trace = error.__traceback__
    while trace is not None:
        yield dict(trace.tb_frame.f_locals)
        trace = trace.tb_next
