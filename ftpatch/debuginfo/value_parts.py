# SPDX-License-Identifier: MIT
"""Parts of values, from DWARF: elements, and the bytes that they have."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.debuginfo.dies import DIE, children, number, origins_of, type_of
from ftpatch.debuginfo.value_places import NoValueError

__all__ = [
    "POINTERS",
    "REFERENCES",
    "Part",
    "counts_of",
    "element_of",
    "require_defined",
    "size_of",
    "some_of",
    "sort_of",
    "stripped",
]

MAX_DEPTH = 32
"""Types within types."""
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


def sort_of(die: DIE) -> str:
    """A composite type's sort: ``a structure``, ``a class`` or ``a union``."""
    return f"a {die.tag.removeprefix('DW_TAG_').removesuffix('_type')}"


def require_defined(die: DIE) -> None:
    """Raise NoValueError for a composite type of which only the name is declared."""
    if "DW_AT_declaration" in die.attributes:
        reason = f"is {sort_of(die)} that this source does not define"
        raise NoValueError(reason, "take the bytes by their offset")


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
