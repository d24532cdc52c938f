# SPDX-License-Identifier: MIT
"""Types of C and C++, from DWARF: what a value is, and what it is to a calling convention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from ftpatch.arch.arguments import Passed, Scalar, Sort, UnclearError
from ftpatch.debuginfo.dies import DIE, children, is_plus, name_of, number, offset_of, type_of
from ftpatch.debuginfo.trivial import is_trivial

__all__ = ["COMPOSITES", "Kind", "Member", "Type", "Types", "passed"]

MAX_DEPTH = 32
"""Types within types."""
MAX_SIZE = 64
"""Bytes of a composite of which the members are read: four vector registers."""
MAX_PARTS = 256
"""Types within one, each as often as it occurs."""
MAX_ENUMERATORS = 1 << 16
SAME = {f"DW_TAG_{name}" for name in ("const_type", "volatile_type", "restrict_type", "typedef")}
POINTERS = {f"DW_TAG_{name}_type" for name in ("pointer", "reference", "rvalue_reference")}
COMPOSITES = {f"DW_TAG_{name}_type" for name in ("structure", "class", "union")}
CHARACTERS = {"char", "char8_t", "char16_t", "char32_t"}
BY_REFERENCE, BY_VALUE = 4, 5
"""DW_CC_pass_by_reference and DW_CC_pass_by_value."""
# Encodings of base types: DW_ATE_*.
ADDRESS, BOOLEAN, COMPLEX, FLOAT, SIGNED, SIGNED_CHAR, UNSIGNED, UNSIGNED_CHAR = range(1, 9)
DECIMAL, UTF = 0x0F, 0x10


class Kind(Enum):
    """Kinds of values."""

    SIGNED = auto()
    UNSIGNED = auto()
    BOOL = auto()
    CHAR = auto()
    ENUM = auto()
    POINTER = auto()
    FUNCTION = auto()
    """A pointer to a function."""
    FLOAT = auto()
    OTHER_FLOAT = auto()
    """One that is not IEEE's of 4 or 8 bytes."""
    EXTENDED = auto()
    COMPLEX = auto()
    VECTOR = auto()
    COMPOSITE = auto()
    ARRAY = auto()


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member or a base (without a ``name``) of a type, ``offset`` bytes from its start;
    ``bits`` wide from bit ``first`` of the whole on if it is a bit-field."""

    name: str
    offset: int
    type: Type
    first: int = 0
    bits: int = 0


@dataclass(frozen=True, kw_only=True)
class Type:
    """A type of ``size`` bytes, without its typedefs and qualifiers. ``names``: enumerators by
    value; ``members``: a composite's, an array's elements, a complex number's parts; ``union``:
    these share their place."""

    kind: Kind
    size: int
    names: Mapping[int, str] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    union: bool = False
    by_reference: bool = False

    @cached_property
    def parts(self) -> int:
        """Types in it, each as often as it occurs."""
        return 1 + sum(member.type.parts for member in self.members)


def passed(one: Type) -> Passed:
    """A type as its calling convention sees it."""
    composite = one.kind is Kind.COMPOSITE
    scalars = tuple(_scalars(one, 0)) if one.size <= MAX_SIZE else ()
    return Passed(
        size=one.size,
        scalars=scalars,
        composite=composite,
        union=_has_union(one),
        by_reference=one.by_reference,
        widest=_widest(one),
    )


def _widest(one: Type) -> int:
    """The size of the widest scalar in a type; of bit fields that of what they are declared as."""
    if one.kind in (Kind.COMPOSITE, Kind.ARRAY, Kind.COMPLEX):
        return max((_widest(member.type) for member in one.members), default=0)
    return one.size


def _has_union(one: Type) -> bool:
    return one.union or any(_has_union(member.type) for member in one.members)


def _scalars(one: Type, at: int) -> Iterator[Scalar]:
    """The scalars in a type that begins ``at`` bytes from the start of the whole."""
    if one.kind in (Kind.COMPOSITE, Kind.ARRAY, Kind.COMPLEX):
        for member in one.members:
            if member.bits:
                for bit in {member.first, member.first + member.bits - 1}:
                    yield Scalar(offset=at + bit // 8, size=1, sort=Sort.INTEGER)
            elif member.type.kind is Kind.COMPOSITE and not member.type.members:
                yield Scalar(offset=at + member.offset, size=0, sort=Sort.EMPTY)
            else:
                yield from _scalars(member.type, at + member.offset)
        return
    sort = {
        Kind.FLOAT: Sort.FLOAT,
        Kind.OTHER_FLOAT: Sort.FLOAT,
        Kind.EXTENDED: Sort.EXTENDED,
        Kind.VECTOR: Sort.VECTOR,
    }.get(one.kind, Sort.INTEGER)
    yield Scalar(offset=at, size=one.size, sort=sort)


class Types:
    """Reads types, each once. All methods raise UnclearError for what they do not know."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Type] = {}

    def of(self, die: DIE, depth: int = 0) -> Type | None:
        """The type of what a DIE declares; None for void."""
        if "DW_AT_type" not in die.attributes:
            return None
        found = type_of(die)
        key = id(found.cu), found.offset
        if key not in self._known:
            if depth > MAX_DEPTH:
                raise UnclearError
            made = self._read(found, depth + 1)
            if made is None:
                return None
            if made.parts > MAX_PARTS:
                raise UnclearError
            self._known[key] = made
        return self._known[key]

    def _read(self, die: DIE, depth: int) -> Type | None:
        tag, attributes = die.tag, die.attributes
        if "DW_AT_alignment" in attributes:
            raise UnclearError
        if tag in SAME:
            return self.of(die, depth)
        if tag == "DW_TAG_atomic_type":
            held = self.of(die, depth)
            if held and held.members:
                raise UnclearError  # it may be larger than what it holds
            return held
        size = number(die, "DW_AT_byte_size", -1)
        if tag in POINTERS:
            return Type(kind=_points_to(die), size=die.cu["address_size"] if size < 0 else size)
        if tag == "DW_TAG_unspecified_type" and name_of(die) == "decltype(nullptr)":
            return Type(kind=Kind.POINTER, size=die.cu["address_size"])
        if tag == "DW_TAG_ptr_to_member_type":
            return _to_member(die)
        if tag == "DW_TAG_base_type":
            return _base(die, size)
        if tag == "DW_TAG_enumeration_type":
            if size < 0:
                under = self.of(die, depth)
                size = under.size if under else -1
            return Type(kind=Kind.ENUM, size=_scalar_size(size), names=_enumerators(die, size))
        if tag == "DW_TAG_array_type":
            return self._array(die, size, depth)
        if tag in COMPOSITES and size >= 0 and "DW_AT_declaration" not in attributes:
            return self._composite(die, size, depth)
        raise UnclearError

    def _composite(self, die: DIE, size: int, depth: int) -> Type:
        how = number(die, "DW_AT_calling_convention", 0)
        if how not in (BY_REFERENCE, BY_VALUE):
            how = BY_VALUE if not is_plus(die) or is_trivial(die) else BY_REFERENCE
        members: tuple[Member, ...] = ()
        if how != BY_REFERENCE and size <= MAX_SIZE:
            members = tuple(self._members(die, depth))
        return Type(
            kind=Kind.COMPOSITE,
            size=size,
            members=members,
            union=die.tag == "DW_TAG_union_type",
            by_reference=how == BY_REFERENCE,
        )

    def _members(self, die: DIE, depth: int) -> Iterator[Member]:
        for count, child in enumerate(children(die)):
            if count > 1 << 16:
                raise UnclearError
            held = child.attributes
            if child.tag == "DW_TAG_variant_part" or "DW_AT_alignment" in held:
                raise UnclearError
            if child.tag not in ("DW_TAG_member", "DW_TAG_inheritance"):
                continue
            if "DW_AT_external" in held or "DW_AT_declaration" in held:
                continue  # static
            if "DW_AT_virtuality" in held:
                raise UnclearError
            type_ = self.of(child, depth)
            if type_ is None:
                raise UnclearError
            offset = offset_of(child, "DW_AT_data_member_location")
            bits = number(child, "DW_AT_bit_size", 0)
            first = 8 * offset + number(child, "DW_AT_data_bit_offset", 0) if bits else 0
            if "DW_AT_bit_offset" in held:  # of DWARF 3, from the other end of an integer
                whole = number(child, "DW_AT_byte_size", type_.size)
                first += 8 * whole - bits - number(child, "DW_AT_bit_offset", 0)
            if not (0 <= offset <= MAX_SIZE and 0 <= first <= first + bits <= 8 * MAX_SIZE):
                raise UnclearError
            yield Member(name=name_of(child), offset=offset, type=type_, first=first, bits=bits)

    def _array(self, die: DIE, size: int, depth: int) -> Type:
        element = self.of(die, depth)
        if element is None or not element.size:
            raise UnclearError
        count = 1
        for child in children(die):
            if child.tag == "DW_TAG_subrange_type":
                upper = number(child, "DW_AT_upper_bound", -1)
                count *= number(child, "DW_AT_count", upper + 1)
        whole = count * element.size
        if not 0 <= whole <= MAX_SIZE:
            raise UnclearError
        if "DW_AT_GNU_vector" in die.attributes:
            return Type(kind=Kind.VECTOR, size=whole if size < 0 else size)
        members = tuple(
            Member(name="", offset=n * element.size, type=element) for n in range(count)
        )
        return Type(kind=Kind.ARRAY, size=whole, members=members)


def _points_to(die: DIE) -> Kind:
    for _ in range(MAX_DEPTH):
        if "DW_AT_type" not in die.attributes:
            break
        die = type_of(die)
        if die.tag == "DW_TAG_subroutine_type":
            return Kind.FUNCTION
        if die.tag not in SAME:
            break
    return Kind.POINTER


def _to_member(die: DIE) -> Type:
    """A pointer to a member: of data an offset, of functions an address or index and an offset
    (Itanium C++ ABI, section 2.3)."""
    word = die.cu["address_size"]
    one = Type(kind=Kind.SIGNED, size=word)
    if type_of(die).tag != "DW_TAG_subroutine_type":
        return one
    parts = (
        Member(name="ptr", offset=0, type=Type(kind=Kind.POINTER, size=word)),
        Member(name="adj", offset=word, type=one),
    )
    return Type(kind=Kind.COMPOSITE, size=2 * word, members=parts)


def _base(die: DIE, size: int) -> Type:
    name, encoding = name_of(die), number(die, "DW_AT_encoding", 0)
    if "DW_AT_bit_size" in die.attributes or "_BitInt" in name:
        raise UnclearError
    size = _scalar_size(size)
    if encoding in (FLOAT, DECIMAL, COMPLEX):
        part = size // 2 if encoding == COMPLEX else size
        if "long double" in name and part > 8:
            kind = Kind.EXTENDED
        else:
            kind = Kind.FLOAT if encoding != DECIMAL and part in (4, 8) else Kind.OTHER_FLOAT
        one = Type(kind=kind, size=part)
        if encoding != COMPLEX:
            return one
        members = tuple(Member(name="", offset=n * part, type=one) for n in range(2))
        return Type(kind=Kind.COMPLEX, size=size, members=members)
    kinds = {
        ADDRESS: Kind.POINTER,
        BOOLEAN: Kind.BOOL,
        SIGNED: Kind.SIGNED,
        SIGNED_CHAR: Kind.SIGNED,
        UNSIGNED: Kind.UNSIGNED,
        UNSIGNED_CHAR: Kind.UNSIGNED,
        UTF: Kind.CHAR,
    }
    if encoding not in kinds or size > 16:
        raise UnclearError
    return Type(kind=Kind.CHAR if name in CHARACTERS else kinds[encoding], size=size)


def _scalar_size(size: int) -> int:
    if size not in (1, 2, 4, 8, 12, 16, 24, 32):
        raise UnclearError
    return size


def _enumerators(die: DIE, size: int) -> dict[int, str]:
    """Enumerators by value, as unsigned; the first of those that are equal."""
    out: dict[int, str] = {}
    for child in children(die):
        if child.tag == "DW_TAG_enumerator":
            value = number(child, "DW_AT_const_value", 0) & ((1 << 8 * size) - 1)
            out.setdefault(value, name_of(child))
        if len(out) > MAX_ENUMERATORS:
            raise UnclearError
    return out
