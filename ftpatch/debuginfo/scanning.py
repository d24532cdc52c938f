# SPDX-License-Identifier: MIT
"""Entries of a unit by their tags, without parsing those around them.

Pyelftools takes 40 us for an entry, and a unit of C++ has thousands, of which clang does not even
tell where the next sibling is. Here an entry is skipped by the sizes that its abbreviation tells,
and only those that are asked for become pyelftools' objects. Where that fails, all are parsed,
which tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, Literal

from ftpatch.debuginfo.dies import DIE, below

__all__ = ["CODED", "entries"]

CODED = frozenset({"DW_AT_low_pc", "DW_AT_ranges"})
"""Attributes that functions with code have."""
SIZES = {
    "data1": 1, "data2": 2, "data4": 4, "data8": 8, "data16": 16, "flag": 1, "flag_present": 0,
    "implicit_const": 0, "ref1": 1, "ref2": 2, "ref4": 4, "ref8": 8, "ref_sig8": 8, "ref_sup4": 4,
    "ref_sup8": 8, "strx1": 1, "strx2": 2, "strx3": 3, "strx4": 4, "addrx1": 1, "addrx2": 2,
    "addrx3": 3, "addrx4": 4,
}  # fmt: skip
"""Bytes of what is of one size always, DW_FORM_*."""
OFFSETS = {"strp", "line_strp", "sec_offset", "strp_sup", "GNU_ref_alt", "GNU_strp_alt"}
LEBS = {
    "udata", "sdata", "ref_udata", "strx", "addrx", "loclistx", "rnglistx", "GNU_addr_index",
    "GNU_str_index",
}  # fmt: skip
NUMBER, TEXT, BLOCK, BLOCK1, BLOCK2, BLOCK4 = range(-6, 0)
"""Values that tell their sizes themselves."""
TOLD = {
    **dict.fromkeys(LEBS, NUMBER),
    "string": TEXT,
    **dict.fromkeys(("exprloc", "block"), BLOCK),
    "block1": BLOCK1,
    "block2": BLOCK2,
    "block4": BLOCK4,
}
MAX_NESTED = 256
"""Entries within one another that are looked into."""


class _Wanted:
    """What is asked for, in DWARF's numbers: entries with a ``tag``, and with one of the attributes
    ``having``, if there are any, below one another as far as they are ``scopes``."""

    def __init__(self, tag: str, scopes: Set[str], having: Set[str]) -> None:
        from elftools.dwarf.enums import ENUM_DW_AT, ENUM_DW_FORM, ENUM_DW_TAG

        self.tag = ENUM_DW_TAG[tag]
        self.scopes = {ENUM_DW_TAG[one] for one in scopes}
        self.having = {ENUM_DW_AT[one] for one in having}
        self.sibling: int = ENUM_DW_AT["DW_AT_sibling"]
        self.forms = {
            number: name.removeprefix("DW_FORM_")
            for name, number in ENUM_DW_FORM.items()
            if isinstance(number, int)
        }


class _Skip:
    """How to skip an entry: over each of ``steps``, a size (bytes) or what tells its own.
    ``sibling``: the bytes from where it has the distance of the next one to its end, 0 if it does
    not tell that, or not there; ``is_wanted``: it is one that is asked for; ``is_scope``: there
    may be one in it."""

    __slots__ = ("has_children", "is_scope", "is_wanted", "sibling", "steps")

    def __init__(self, table: Any, code: int, unit: Any, wanted: _Wanted) -> None:  # noqa: ANN401
        tag, self.has_children, specs = table.declared(code)
        self.is_scope = tag in wanted.scopes
        names = {name for name, _ in specs}
        self.is_wanted = tag == wanted.tag and (not wanted.having or bool(names & wanted.having))
        steps, self.sibling = list[int](), 0
        for name, form in specs:
            text = wanted.forms[form]
            size = _size(text, unit)
            if name == wanted.sibling and text == "ref4":
                self.sibling = 4
            elif self.sibling:
                self.sibling = self.sibling + size if size >= 0 else 0
            if size > 0 and steps and steps[-1] > 0:
                steps[-1] += size
            elif size:
                steps.append(size)
        self.steps = tuple(steps)


def entries(top: DIE, tag: str, scopes: Set[str], having: Set[str] = frozenset()) -> Iterator[DIE]:
    """The DIEs with a tag below a unit's, as far as they are in scopes, and have one of these
    attributes, if any are told. Raises what pyelftools raises."""
    try:
        offsets: Sequence[int] | None = _scanned(top, _Wanted(tag, scopes, having))
    except Exception:  # it is damaged, or has a form that has no size
        offsets = None
    if offsets is not None:
        for offset in offsets:
            yield top.cu.get_DIE_from_refaddr(offset)
        return
    for die in below(top, set(scopes)):
        if die.tag == tag and (not having or not having.isdisjoint(die.attributes)):
            yield die


def _scanned(top: DIE, wanted: _Wanted) -> list[int]:
    """Their offsets. Raises IndexError where the section ends, KeyError for an unknown form, and
    DamagedError for an unknown abbreviation."""
    unit, out = top.cu, list[int]()
    raw: memoryview = top.stream.getbuffer()
    table = unit.get_abbrev_table()
    ends: Literal["little", "big"] = "little" if unit.structs.little_endian else "big"
    skips: dict[int, _Skip] = {}
    start, at, end = unit.cu_offset, top.offset + top.size, unit.cu_offset + unit.size
    inside, outside = int(top.has_children), 0  # scopes around, and entries within another one
    while inside and at < end:
        begin, code = at, raw[at]
        at += 1
        if code > 0x7F:
            at = _behind(raw, begin)
            code = _number(raw, begin)
        if not code:
            if outside:
                outside -= 1
            else:
                inside -= 1
            continue
        skip = skips.get(code)
        if skip is None:
            skip = skips[code] = _Skip(table, code, unit, wanted)
        for step in skip.steps:
            at = at + step if step > 0 else _told(raw, at, step, ends)
        if outside:
            outside += skip.has_children
            continue
        if skip.is_wanted:
            out.append(begin)
        if not skip.has_children:
            continue
        if skip.is_scope and inside < MAX_NESTED:
            inside += 1
            continue
        place = at
        if skip.sibling:
            told = at - skip.sibling
            place = start + int.from_bytes(raw[told : told + 4], ends)
        if at < place < end:
            at = place
        else:
            outside = 1
    return out


def _size(form: str, unit: Any) -> int:  # noqa: ANN401 - of pyelftools
    """The bytes of a form, or what it is. Raises KeyError for one that is unknown."""
    if form == "addr" or (form == "ref_addr" and unit["version"] < 3):
        return int(unit["address_size"])
    if form in OFFSETS or form == "ref_addr":
        return int(unit.structs.dwarf_format) // 8
    return TOLD[form] if form in TOLD else SIZES[form]


def _told(raw: memoryview, at: int, what: int, ends: Literal["little", "big"]) -> int:
    """What is behind a value that tells its size. Raises IndexError."""
    if what == NUMBER:
        return _behind(raw, at)
    if what == BLOCK:
        return _behind(raw, at) + _number(raw, at)
    if what == TEXT:
        while raw[at]:
            at += 1
        return at + 1
    size = {BLOCK1: 1, BLOCK2: 2, BLOCK4: 4}[what]
    return at + size + int.from_bytes(raw[at : at + size], ends)


def _behind(raw: memoryview, at: int) -> int:
    """What is behind a number in LEB128. Raises IndexError."""
    while raw[at] > 0x7F:
        at += 1
    return at + 1


def _number(raw: memoryview, at: int) -> int:
    """A number in ULEB128. Raises IndexError."""
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        if raw[at] < 0x80:
            return value
        at, shift = at + 1, shift + 7
