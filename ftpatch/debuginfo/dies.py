# SPDX-License-Identifier: MIT
"""Entries of debug information (DIEs): their children, names and numbers.

They are pyelftools' objects, which are not typed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ftpatch.debuginfo.damage import DamagedError

__all__ = [
    "DIE",
    "UnusableError",
    "below",
    "children",
    "is_c",
    "is_plus",
    "is_rust",
    "linked",
    "name_of",
    "number",
    "offset_of",
    "origins_of",
    "text_of",
    "type_of",
]

DIE = Any
C = {0x01, 0x02, 0x0C, 0x1D, 0x2C, 0x3E}
"""DW_LANG_C*: C89, C, C99, C11, C17, C23."""
RUST = 0x1C
"""DW_LANG_Rust."""
PLUS = {0x04, 0x19, 0x1A, 0x21, 0x2A, 0x2B, 0x3A}
"""DW_LANG_C_plus_plus*: 98, 03, 11, 14, 17, 20, 23."""


ELSEWHERE = {"DW_FORM_GNU_ref_alt", "DW_FORM_ref_sup4", "DW_FORM_ref_sup8"}
MAX_NESTED = 256
"""Entries within one another that are looked into."""
MAX_ORIGINS = 8
"""Declarations behind one another."""
PLUS_UCONST = 0x23
"""DW_OP_plus_uconst, followed by a number in ULEB128."""


class UnusableError(Exception):
    """An attribute is an expression, or refers to what is in another file or section."""


def children(die: DIE) -> Iterator[DIE]:
    """The children of a DIE. Each begins behind the one before, whatever the file says."""
    if not die.has_children:
        return
    unit, depth = die.cu, 0
    at, end = die.offset + die.size, unit.cu_offset + unit.size
    while at < end:
        child = unit.get_DIE_from_refaddr(at)
        at += child.size
        if child.is_null():
            if not depth:
                return
            depth -= 1
            continue
        if not depth:
            yield child
        if child.has_children:
            sibling = child.attributes.get("DW_AT_sibling")
            local = sibling is not None and sibling.form != "DW_FORM_ref_addr"
            place = sibling.value + unit.cu_offset if local else 0
            if place > at:
                at = place
            else:
                depth += 1


def name_of(die: DIE) -> str:
    """The name of what a DIE declares, empty if it has none."""
    return text_of(die, "DW_AT_name")


def text_of(die: DIE, name: str) -> str:
    """The text of an attribute, empty if there is none. Raises DamagedError."""
    held = die.attributes.get(name)
    if held is None:
        return ""
    if not isinstance(held.value, bytes):
        raise DamagedError(f"{name} is no text, or one that does not end")
    return held.value.decode("utf-8", "backslashreplace")


def number(die: DIE, name: str, default: int) -> int:
    """The value of an attribute. Raises UnusableError."""
    held = die.attributes.get(name)
    if held is None:
        return default
    if not isinstance(held.value, int):
        raise UnusableError
    return held.value


def linked(die: DIE, name: str) -> DIE:
    """The DIE that an attribute of another one refers to. Raises UnusableError."""
    held = die.attributes[name]
    if held.form in ELSEWHERE or (held.form == "DW_FORM_ref_sig8" and die.cu["version"] < 5):
        raise UnusableError
    if held.form == "DW_FORM_ref_sig8":
        # pyelftools looks for these types in the section of their own that they had before.
        for unit in die.dwarfinfo.iter_CUs():
            if unit.header.get("type_signature") == held.raw_value:
                return unit.get_DIE_from_refaddr(unit.cu_offset + unit["type_offset"])
    return die.get_DIE_from_attribute(name)


def type_of(die: DIE) -> DIE:
    """The type of what a DIE declares; the whole one, where only its signature is in this unit."""
    found = linked(die, "DW_AT_type")
    return linked(found, "DW_AT_signature") if "DW_AT_signature" in found.attributes else found


def offset_of(die: DIE, name: str) -> int:
    """The offset that an attribute states: a number, or as before DWARF 3 an expression."""
    held = die.attributes.get(name)
    raw = held.value if held is not None else 0
    if not isinstance(raw, list) or not raw or raw[0] != PLUS_UCONST:
        return number(die, name, 0)
    value = 0
    for place, byte in enumerate(raw[1:10]):
        value |= (byte & 0x7F) << 7 * place
    return value


def is_c(die: DIE) -> bool:
    """Return whether the source around a DIE is C."""
    return number(die.cu.get_top_DIE(), "DW_AT_language", 0) in C


def is_plus(die: DIE) -> bool:
    """Return whether the source around a DIE is C++."""
    return number(die.cu.get_top_DIE(), "DW_AT_language", 0) in PLUS


def is_rust(die: DIE) -> bool:
    """Return whether the source around a DIE is Rust."""
    return number(die.cu.get_top_DIE(), "DW_AT_language", 0) == RUST


def below(die: DIE, scopes: set[str]) -> Iterator[DIE]:
    """All DIEs below one, as far as they are in scopes."""
    waiting = [children(die)]
    while waiting:
        child = next(waiting[-1], None)
        if child is None:
            waiting.pop()
            continue
        yield child
        if child.tag in scopes and len(waiting) < MAX_NESTED:
            waiting.append(children(child))


def origins_of(die: DIE) -> list[DIE]:
    """A DIE, and the declarations that it completes."""
    out = [die]
    while len(out) < MAX_ORIGINS:
        links = ("DW_AT_abstract_origin", "DW_AT_specification")
        link = next((one for one in links if one in out[-1].attributes), None)
        if link is None:
            break
        out.append(linked(out[-1], link))
    return out
