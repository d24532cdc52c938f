# SPDX-License-Identifier: MIT
"""Forms in which values are shown, by the types that debug information tells."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.debuginfo.dies import DIE, children, name_of, number
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_parts import (
    POINTERS,
    counts_of,
    members_of,
    size_of,
    some_of,
    stripped,
)
from ftpatch.debuginfo.value_places import NoValueError
from ftpatch.probe.shown_as import MAX_NAMES

__all__ = ["Shown", "shown"]

WHAT = {"structure": "a structure", "class": "a class", "union": "a union"}
CHARACTERS = {"char", "char8_t"}
# Encodings of base types: DW_ATE_*.
ADDRESS, BOOLEAN, SIGNED, SIGNED_CHAR, UNSIGNED, UNSIGNED_CHAR, UTF = 1, 2, 5, 6, 7, 8, 0x10
SCALARS = (1, 2, 4, 8)
FALSE_TRUE = ((0, "false"), (1, "true"))


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The form in which a value of ``size`` bytes is shown: the type of its fetch, its ``names`` or
    the ``room`` of its string; ``follow``: the string is where it points to."""

    type: str
    size: int
    names: tuple[tuple[int, str], ...] = ()
    room: int = 0
    follow: bool = False


def shown(die: DIE | None, dimension: int = 0) -> Shown:
    """The form of a value that is fetched without a TYPE. Raises NoValueError."""
    if die is None:
        raise NoValueError("is void")
    tag = die.tag
    if tag in COMPOSITES:
        what = WHAT[tag.removeprefix("DW_TAG_").removesuffix("_type")]
        names = members_of(die)
        raise NoValueError(f"is {what}", f"name a member: {some_of(names)}" if names else "")
    if tag == "DW_TAG_array_type":
        counts = counts_of(die)
        if dimension + 1 >= len(counts) and _is_character(stripped(die)):
            return Shown(type="string", size=0, room=counts[dimension] if counts else 0)
        raise NoValueError("is an array", "name an element, as in items[0]")
    size = size_of(die)
    if tag in POINTERS or tag == "DW_TAG_ptr_to_member_type":
        if size != SCALARS[-1]:
            raise NoValueError("is no value of a word")
        if tag == "DW_TAG_pointer_type" and _is_character(stripped(die)):
            return Shown(type="string", size=size, follow=True)
        return Shown(type="x64", size=size)
    if size not in SCALARS:
        raise NoValueError(f"has {size} bytes", "a value has 1, 2, 4 or 8")
    if tag == "DW_TAG_enumeration_type":
        return _enumeration(die, size)
    encoding = number(die, "DW_AT_encoding", 0)
    if tag == "DW_TAG_base_type" and encoding == BOOLEAN:
        return Shown(type=f"u{8 * size}", size=size, names=FALSE_TRUE)
    letters = {SIGNED: "s", SIGNED_CHAR: "s", UNSIGNED: "u", UNSIGNED_CHAR: "u", UTF: "u"}
    letters[ADDRESS] = "x"
    if tag != "DW_TAG_base_type" or encoding not in letters:
        raise NoValueError(f"is a {name_of(die) or 'value'}", f"write :x{8 * size} for its bits")
    return Shown(type=f"{letters[encoding]}{8 * size}", size=size)


def _enumeration(die: DIE, size: int) -> Shown:
    values: dict[int, str] = {}
    for child in children(die):
        if child.tag == "DW_TAG_enumerator":
            values.setdefault(number(child, "DW_AT_const_value", 0), name_of(child))
        if len(values) > MAX_NAMES:
            break
    under = stripped(die) if "DW_AT_type" in die.attributes else None
    encoding = number(under, "DW_AT_encoding", 0) if under is not None else 0
    signed = encoding in (SIGNED, SIGNED_CHAR) if encoding else min(values, default=0) < 0
    bits = 8 * size
    low = -(1 << (bits - 1)) if signed else 0
    named = {(value - low) % (1 << bits) + low: name for value, name in values.items()}
    fits = len(values) <= MAX_NAMES and all(name.isidentifier() for name in named.values())
    names = tuple(sorted(named.items())) if fits else ()
    return Shown(type=f"{'s' if signed else 'u'}{bits}", size=size, names=names)


def _is_character(die: DIE | None) -> bool:
    return (
        die is not None
        and die.tag == "DW_TAG_base_type"
        and name_of(die) in CHARACTERS
        and number(die, "DW_AT_byte_size", 0) == 1
    )
