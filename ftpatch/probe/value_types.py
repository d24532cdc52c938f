# SPDX-License-Identifier: MIT
"""Types of values, from DWARF: their members and elements, and how a probe shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.names.suggest import meant, near
from ftpatch.probe.shown_as import MAX_NAMES
from ftpatch.probe.value_places import NotFetchedError
from ftpatch.trace.dies import DIE, children, name_of, number, offset_of, origins_of, type_of

__all__ = ["Part", "Shown", "element_of", "member_of", "members_of", "shown", "size_of", "stripped"]

MAX_DEPTH = 32
"""Types within types."""
MAX_MEMBERS = 1 << 14
"""Members looked at for one."""
SAME = {f"DW_TAG_{name}_type" for name in ("const", "volatile", "restrict", "atomic")}
SAME |= {"DW_TAG_typedef", "DW_TAG_packed_type", "DW_TAG_immutable_type"}
REFERENCES = {"DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
POINTERS = {"DW_TAG_pointer_type", *REFERENCES}
COMPOSITES = {f"DW_TAG_{name}_type" for name in ("structure", "class", "union")}
WHAT = {"structure": "a structure", "class": "a class", "union": "a union"}
CHARACTERS = {"char", "char8_t"}
# Encodings of base types: DW_ATE_*.
ADDRESS, BOOLEAN, SIGNED, SIGNED_CHAR, UNSIGNED, UNSIGNED_CHAR, UTF = 1, 2, 5, 6, 7, 8, 0x10
SCALARS = (1, 2, 4, 8)
FALSE_TRUE = ((0, "false"), (1, "true"))


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a value: it begins ``offset`` bytes further, and is of the type ``die``; None for
    void. ``dimension``: of an array, the first that is left."""

    offset: int
    die: DIE | None
    dimension: int = 0


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The form in which a value of ``size`` bytes is shown: the type of its fetch, its ``names`` or
    the ``room`` of its string; ``follow``: the string is where it points to."""

    type: str
    size: int
    names: tuple[tuple[int, str], ...] = ()
    room: int = 0
    follow: bool = False


def stripped(die: DIE) -> DIE | None:
    """The type of what a DIE declares, without typedefs and qualifiers; None for void. Raises
    NotFetchedError, and UnusableError."""
    for _ in range(MAX_DEPTH):
        held = next((one for one in origins_of(die) if "DW_AT_type" in one.attributes), None)
        if held is None:
            return None
        die = type_of(held)
        if die.tag not in SAME:
            return die
    raise NotFetchedError("has a type of itself")


def size_of(die: DIE | None, dimension: int = 0, depth: int = 0) -> int:
    """The bytes of a type. Raises NotFetchedError."""
    if depth > MAX_DEPTH:
        raise NotFetchedError("has a type of itself")
    if die is None:
        raise NotFetchedError("is void")
    if die.tag == "DW_TAG_array_type":
        size = size_of(stripped(die), depth=depth + 1)
        for count in _counts(die)[dimension:]:
            size *= count
        return size
    size = number(die, "DW_AT_byte_size", -1)
    if size < 0 and die.tag in POINTERS:
        size = die.cu["address_size"]
    if size < 0 and die.tag == "DW_TAG_enumeration_type":
        size = size_of(stripped(die), depth=depth + 1)
    if size < 0:
        raise NotFetchedError("has a type of unknown size")
    return size


def member_of(die: DIE, name: str) -> Part | None:
    """A member by name, also of what has no name itself, and of bases; None if there is none.
    Raises NotFetchedError."""
    for offset, member in _members(die):
        if name_of(member) == name or (name.isdigit() and name_of(member) == f"__{name}"):
            extra = _bit_offset(member)
            return Part(offset=offset + extra, die=stripped(member))
    return None


def members_of(die: DIE) -> list[str]:
    """The names of all members."""
    return [name for _, member in _members(die) if (name := name_of(member))]


def element_of(die: DIE, index: int, dimension: int = 0) -> Part:
    """An element of an array. Raises NotFetchedError for one that it does not have."""
    if "DW_AT_byte_stride" in die.attributes or "DW_AT_bit_stride" in die.attributes:
        raise NotFetchedError("is an array with gaps")
    counts = _counts(die)
    count = counts[dimension] if dimension < len(counts) else 0
    if index < 0 or (count > 1 and index >= count):
        raise NotFetchedError(f"has {count} elements", "they count from 0")
    inner = stripped(die)
    last = dimension + 1 >= len(counts)
    size = size_of(inner) if last else size_of(die, dimension + 1)
    if last:
        return Part(offset=index * size, die=inner)
    return Part(offset=index * size, die=die, dimension=dimension + 1)


def shown(die: DIE | None, dimension: int = 0) -> Shown:
    """The form of a value that is fetched without a TYPE. Raises NotFetchedError."""
    if die is None:
        raise NotFetchedError("is void")
    tag = die.tag
    if tag in COMPOSITES:
        what = WHAT[tag.removeprefix("DW_TAG_").removesuffix("_type")]
        names = members_of(die)
        raise NotFetchedError(f"is {what}", f"name a member: {_some(names)}" if names else "")
    if tag == "DW_TAG_array_type":
        counts = _counts(die)
        if dimension + 1 >= len(counts) and _is_character(stripped(die)):
            return Shown(type="string", size=0, room=counts[dimension] if counts else 0)
        raise NotFetchedError("is an array", "name an element, as in items[0]")
    size = size_of(die)
    if tag in POINTERS or tag == "DW_TAG_ptr_to_member_type":
        if size != SCALARS[-1]:
            raise NotFetchedError("is no value of a word")
        if tag == "DW_TAG_pointer_type" and _is_character(stripped(die)):
            return Shown(type="string", size=size, follow=True)
        return Shown(type="x64", size=size)
    if size not in SCALARS:
        raise NotFetchedError(f"has {size} bytes", "a value has 1, 2, 4 or 8")
    if tag == "DW_TAG_enumeration_type":
        return _enumeration(die, size)
    encoding = number(die, "DW_AT_encoding", 0)
    if tag == "DW_TAG_base_type" and encoding == BOOLEAN:
        return Shown(type=f"u{8 * size}", size=size, names=FALSE_TRUE)
    letters = {SIGNED: "s", SIGNED_CHAR: "s", UNSIGNED: "u", UNSIGNED_CHAR: "u", UTF: "u"}
    letters[ADDRESS] = "x"
    if tag != "DW_TAG_base_type" or encoding not in letters:
        raise NotFetchedError(f"is a {name_of(die) or 'value'}", f"write :x{8 * size} for its bits")
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


def _members(die: DIE) -> Iterator[tuple[int, DIE]]:
    """Offsets and DIEs of members: a type's own first, then those of its bases."""
    waiting, seen = [(0, die, 0)], 0
    while waiting:
        above, one, depth = waiting.pop(0)
        if depth > MAX_DEPTH:
            raise NotFetchedError("has a type of itself")
        for child in children(one):
            seen += 1
            if seen > MAX_MEMBERS:
                raise NotFetchedError("has too many members")
            held = child.attributes
            if child.tag not in ("DW_TAG_member", "DW_TAG_inheritance"):
                continue
            if {"DW_AT_external", "DW_AT_declaration", "DW_AT_virtuality"} & set(held):
                continue  # static, or of a virtual base, whose offset stands in its table
            offset = above + offset_of(child, "DW_AT_data_member_location")
            if child.tag == "DW_TAG_member" and name_of(child):
                yield offset, child
                continue
            inner = stripped(child)
            if inner is not None and inner.tag in COMPOSITES:
                waiting.append((offset, inner, depth + 1))


def _bit_offset(member: DIE) -> int:
    """Bytes to a bit-field. Raises NotFetchedError unless it is whole bytes."""
    if "DW_AT_bit_size" not in member.attributes:
        return 0
    type_ = stripped(member)
    bits, first = number(member, "DW_AT_bit_size", 0), number(member, "DW_AT_data_bit_offset", 0)
    if "DW_AT_bit_offset" in member.attributes:  # of DWARF 3, from the other end of an integer
        first = 8 * number(member, "DW_AT_byte_size", size_of(type_)) - bits
        first -= number(member, "DW_AT_bit_offset", 0)
    if first % 8 or bits != 8 * size_of(type_):
        raise NotFetchedError("is a bit-field", "fetch the bytes around it, as in +OFFSET(POINTER)")
    return first // 8


def _counts(die: DIE) -> list[int]:
    """The elements of each dimension of an array; 0 where that is not told."""
    counts = []
    for child in children(die):
        if child.tag == "DW_TAG_subrange_type":
            try:
                upper = number(child, "DW_AT_upper_bound", -1)
                count = number(child, "DW_AT_count", upper + 1)
            except Exception:  # an expression
                count = 0
            counts.append(count if 0 <= count < 1 << 31 else 0)
    return counts


def _is_character(die: DIE | None) -> bool:
    return (
        die is not None
        and die.tag == "DW_TAG_base_type"
        and name_of(die) in CHARACTERS
        and number(die, "DW_AT_byte_size", 0) == 1
    )


def _some(names: list[str]) -> str:
    most = 8
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def unknown_member(name: str, known: list[str]) -> NotFetchedError:
    """The error for a member that a type does not have."""
    hint = meant(near(name, known), f"it has {_some(known)}" if known else "")
    return NotFetchedError(f"has no member {name!r}", hint)
