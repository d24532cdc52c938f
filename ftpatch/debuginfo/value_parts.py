# SPDX-License-Identifier: MIT
"""Parts of values, from DWARF: members and elements, and the bytes that they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.debuginfo.dies import DIE, children, name_of, number, offset_of, origins_of, type_of
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_places import NoValueError
from ftpatch.names.suggest import meant, near

__all__ = [
    "POINTERS",
    "REFERENCES",
    "Part",
    "counts_of",
    "element_of",
    "member_of",
    "members_of",
    "size_of",
    "some_of",
    "stripped",
    "unknown_member",
]

MAX_DEPTH = 32
"""Types within types."""
MAX_MEMBERS = 1 << 14
"""Members looked at for one."""
SAME = {f"DW_TAG_{name}_type" for name in ("const", "volatile", "restrict", "atomic")}
SAME |= {"DW_TAG_typedef", "DW_TAG_packed_type", "DW_TAG_immutable_type"}
REFERENCES = {"DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
POINTERS = {"DW_TAG_pointer_type", *REFERENCES}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a value: it begins ``offset`` bytes further, and is of the type ``die``; None for
    void. ``dimension``: of an array, the first that is left."""

    offset: int
    die: DIE | None
    dimension: int = 0


def stripped(die: DIE) -> DIE | None:
    """The type of what a DIE declares, without typedefs and qualifiers; None for void. Raises
    NoValueError, and UnusableError."""
    for _ in range(MAX_DEPTH):
        held = next((one for one in origins_of(die) if "DW_AT_type" in one.attributes), None)
        if held is None:
            return None
        die = type_of(held)
        if die.tag not in SAME:
            return die
    raise NoValueError("has a type of itself")


def size_of(die: DIE | None, dimension: int = 0, depth: int = 0) -> int:
    """The bytes of a type. Raises NoValueError."""
    if depth > MAX_DEPTH:
        raise NoValueError("has a type of itself")
    if die is None:
        raise NoValueError("is void")
    if die.tag == "DW_TAG_array_type":
        size = size_of(stripped(die), depth=depth + 1)
        for count in counts_of(die)[dimension:]:
            size *= count
        return size
    size = number(die, "DW_AT_byte_size", -1)
    if size < 0 and die.tag in POINTERS:
        size = die.cu["address_size"]
    if size < 0 and die.tag == "DW_TAG_enumeration_type":
        size = size_of(stripped(die), depth=depth + 1)
    if size < 0:
        raise NoValueError("has a type of unknown size")
    return size


def member_of(die: DIE, name: str) -> Part | None:
    """A member by name, also of what has no name itself, and of bases; None if there is none.
    Raises NoValueError."""
    for offset, member in _members(die):
        if name_of(member) == name or (name.isdigit() and name_of(member) == f"__{name}"):
            extra = _bit_offset(member)
            return Part(offset=offset + extra, die=stripped(member))
    return None


def members_of(die: DIE) -> list[str]:
    """The names of all members."""
    return [name for _, member in _members(die) if (name := name_of(member))]


def element_of(die: DIE, index: int, dimension: int = 0) -> Part:
    """An element of an array. Raises NoValueError for one that it does not have."""
    if "DW_AT_byte_stride" in die.attributes or "DW_AT_bit_stride" in die.attributes:
        raise NoValueError("is an array with gaps")
    counts = counts_of(die)
    count = counts[dimension] if dimension < len(counts) else 0
    if index < 0 or (count > 1 and index >= count):
        raise NoValueError(f"has {count} elements", "they count from 0")
    inner = stripped(die)
    last = dimension + 1 >= len(counts)
    size = size_of(inner) if last else size_of(die, dimension + 1)
    if last:
        return Part(offset=index * size, die=inner)
    return Part(offset=index * size, die=die, dimension=dimension + 1)


def _members(die: DIE) -> Iterator[tuple[int, DIE]]:
    """Offsets and DIEs of members: a type's own first, then those of its bases."""
    waiting, seen = [(0, die, 0)], 0
    while waiting:
        above, one, depth = waiting.pop(0)
        if depth > MAX_DEPTH:
            raise NoValueError("has a type of itself")
        for child in children(one):
            seen += 1
            if seen > MAX_MEMBERS:
                raise NoValueError("has too many members")
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
    """Bytes to a bit-field. Raises NoValueError unless it is whole bytes."""
    if "DW_AT_bit_size" not in member.attributes:
        return 0
    type_ = stripped(member)
    bits, first = number(member, "DW_AT_bit_size", 0), number(member, "DW_AT_data_bit_offset", 0)
    if "DW_AT_bit_offset" in member.attributes:  # of DWARF 3, from the other end of an integer
        first = 8 * number(member, "DW_AT_byte_size", size_of(type_)) - bits
        first -= number(member, "DW_AT_bit_offset", 0)
    if first % 8 or bits != 8 * size_of(type_):
        hint = "take the bytes around it, by their offset"
        raise NoValueError(f"has {name_of(member)!r} as a bit-field", hint)
    return first // 8


def counts_of(die: DIE) -> list[int]:
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


def some_of(names: list[str]) -> str:
    """The first of these names, for a hint."""
    most = 8
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def unknown_member(name: str, known: list[str]) -> NoValueError:
    """The error for a member that a type does not have."""
    hint = meant(near(name, known), f"it has {some_of(known)}" if known else "")
    return NoValueError(f"has no member {name!r}", hint)
