# SPDX-License-Identifier: MIT
"""Forms in which values are shown, by the types that debug information tells."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ftpatch.debuginfo.dies import DIE, children, is_rust, name_of, number
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_members import Choice, member_of, members_of
from ftpatch.debuginfo.value_parts import (
    POINTERS,
    Part,
    counts_of,
    require_defined,
    size_of,
    some_of,
    sort_of,
    stripped,
)
from ftpatch.debuginfo.value_places import NoValueError
from ftpatch.probe.definition import FLOATS
from ftpatch.probe.shown_as import MAX_NAMES

__all__ = ["Shown", "chosen", "is_float", "is_wide", "shown", "text_in"]

CHARACTERS = {"char", "char8_t"}
# Encodings of base types: DW_ATE_*.
ADDRESS, BOOLEAN, FLOAT, SIGNED, SIGNED_CHAR, UNSIGNED, UNSIGNED_CHAR = 1, 2, 4, 5, 6, 7, 8
UTF = 0x10
SCALARS = (1, 2, 4, 8)
TEXTS = ("&str", "&mut str")
"""Of Rust: an address and a number of bytes."""
STRINGS = ("basic_string<char,", "std::basic_string<char,", "std::__cxx11::basic_string<char,")
"""Names of libstdc++'s std::string begin so; ``STRING_STEPS`` lead to its text, which a NUL ends
(C++ draft, [string.accessors])."""
STRING_STEPS = ("_M_dataplus", "_M_p")
FALSE_TRUE = ((0, "false"), (1, "true"))


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The form in which a value of ``size`` bytes is shown: the type of its fetch, its ``names``
    and that of all ``other`` values, or the ``room`` of its string; ``follow``: the string is where
    it points to."""

    type: str
    size: int
    names: tuple[tuple[int, str], ...] = ()
    other: str = ""
    room: int = 0
    follow: bool = False


def shown(die: DIE | None, dimension: int = 0) -> Shown:
    """The form of a value that is fetched without a TYPE. Raises NoValueError."""
    if die is None:
        raise NoValueError("is void")
    tag = die.tag
    if tag in COMPOSITES:
        require_defined(die)
        names = members_of(die)
        if is_rust(die) and name_of(die) in TEXTS and {"data_ptr", "length"} <= set(names):
            reason = f"is a {name_of(die)}, which no NUL ends"
            raise NoValueError(reason, "name its data_ptr or its length")
        raise NoValueError(
            f"is {sort_of(die)}", f"name a member: {some_of(names)}" if names else ""
        )
    if tag == "DW_TAG_array_type":
        counts = counts_of(die)
        if dimension + 1 >= len(counts) and _is_character(stripped(die)):
            return Shown(type="string", size=0, room=counts[dimension] if counts else 0)
        raise NoValueError("is an array", "name an element, as in items[0]")
    size = size_of(die)
    if tag in POINTERS or tag == "DW_TAG_ptr_to_member_type":
        if size != die.cu["address_size"]:
            raise NoValueError("is no value of a word")
        if tag == "DW_TAG_pointer_type" and _is_character(stripped(die)):
            return Shown(type="string", size=size, follow=True)
        return Shown(type=f"x{8 * size}", size=size)
    if size not in SCALARS and is_float(die):
        raise NoValueError(f"is a {name_of(die)}", "probes read float and double")
    if size not in SCALARS:
        raise NoValueError(f"has {size} bytes", "a value has 1, 2, 4 or 8")
    if tag == "DW_TAG_enumeration_type":
        return _enumeration(die, size)
    encoding = number(die, "DW_AT_encoding", 0)
    if tag == "DW_TAG_base_type" and encoding == BOOLEAN:
        return Shown(type=f"u{8 * size}", size=size, names=FALSE_TRUE)
    letters = {SIGNED: "s", SIGNED_CHAR: "s", UNSIGNED: "u", UNSIGNED_CHAR: "u", UTF: "u"}
    letters[ADDRESS] = "x"
    if encoding == FLOAT and f"f{8 * size}" in FLOATS:
        letters[FLOAT] = "f"
    if tag != "DW_TAG_base_type" or encoding not in letters:
        raise NoValueError(f"is a {name_of(die) or 'value'}", f"write :x{8 * size} for its bits")
    return Shown(type=f"{letters[encoding]}{8 * size}", size=size)


def is_float(die: DIE | None) -> bool:
    """Test for a base type of floating-point numbers, of any size."""
    is_base = die is not None and die.tag == "DW_TAG_base_type"
    return is_base and number(die, "DW_AT_encoding", 0) == FLOAT


def is_wide(die: DIE | None) -> bool:
    """Test for a number that is wider than an address, but not than a value."""
    if die is None or die.tag not in ("DW_TAG_base_type", "DW_TAG_enumeration_type"):
        return False
    return bool(die.cu["address_size"] < size_of(die) <= SCALARS[-1])


def text_in(part: Part) -> Part:
    """The pointer to the text of a std::string; any other part as it is. Raises NoValueError."""
    if part.die is None or part.die.tag not in COMPOSITES:
        return part
    if not name_of(part.die).startswith(STRINGS):
        return part
    inner: Part | None = part
    for name in STRING_STEPS:
        if inner is None or inner.die is None or inner.die.tag not in COMPOSITES:
            return part
        found = member_of(inner.die, name)
        inner = found and replace(found, offset=inner.offset + found.offset)
    return inner if inner is not None and inner.die is not None else part


def chosen(choice: Choice) -> Shown:
    """The form of what tells an enum's variant: by the variants' names. Raises NoValueError."""
    size = size_of(choice.part.die)
    if size not in SCALARS:
        raise NoValueError(f"has {size} bytes", "a value has 1, 2, 4 or 8")
    names = [*(name for _, name in choice.names), choice.other or "_"]
    if len(names) > MAX_NAMES or not all(name.isidentifier() for name in names):
        return Shown(type=f"u{8 * size}", size=size)
    return Shown(type=f"u{8 * size}", size=size, names=choice.names, other=choice.other)


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
