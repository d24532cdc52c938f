# SPDX-License-Identifier: MIT
"""Members of values, from DWARF: of structures and their bases, and variants of Rust's enums.

A name is looked up as C++ does it ([class.member.lookup]): a class's own members hide those of its
bases, and what several bases have is ambiguous. ``Base::id`` names the one of a base.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.debuginfo.dies import DIE, children, name_of, number, offset_of
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_parts import Part, size_of, some_of, stripped
from ftpatch.debuginfo.value_places import NoValueError
from ftpatch.names.suggest import meant, near

__all__ = ["Choice", "choice_of", "member_of", "members_of", "unknown_member"]

MAX_DEPTH = 32
"""Types within types."""
MAX_MEMBERS = 1 << 14
"""Members looked at for one."""
FIXED = {"DW_AT_external", "DW_AT_declaration", "DW_AT_virtuality"}
"""Attributes of members that have no offset of their own: static ones, and virtual bases, whose
offset stands in their table."""
VARIANTS = "DW_TAG_variant_part"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The discriminant of an enum: the ``part`` that has the variant's number, the variants'
    ``names`` by it, and the name of those with any ``other`` one."""

    part: Part
    names: tuple[tuple[int, str], ...]
    other: str


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A member, ``offset`` bytes from the start of the whole; -1 in a virtual base. ``owner``: the
    class that it is of; ``through``: the base of the first class where that is looked for."""

    offset: int
    die: DIE
    owner: DIE
    through: str


class _Lookup:
    """Looks for one name, as far as MAX_MEMBERS members go."""

    def __init__(self, name: str) -> None:
        self._name, self._seen = name, 0

    def all(self, die: DIE, above: int = 0, depth: int = 0, through: str = "") -> list[_Found]:
        """All members of that name: one of the class's own, or else those of its bases."""
        own = [
            _Found(offset=offset, die=one, owner=die, through=through)
            for offset, one in self._own(die, above, depth)
        ]
        if own:
            return own[:1]
        out: list[_Found] = []
        for base in self._children(die, depth):
            if base.tag != "DW_TAG_inheritance":
                continue
            inner = stripped(base)
            if inner is None or inner.tag not in COMPOSITES:
                continue
            virtual = number(base, "DW_AT_virtuality", 0) or above < 0
            at = -1 if virtual else above + offset_of(base, "DW_AT_data_member_location")
            for one in self.all(inner, at, depth + 1, through or name_of(inner)):
                same = one.offset < 0 and any(one.owner == other.owner for other in out)
                out += [] if same else [one]
        return out

    def _own(self, die: DIE, above: int, depth: int) -> Iterator[tuple[int, DIE]]:
        for child in self._children(die, depth):
            if child.tag == VARIANTS:
                for _, member in _variants(child):
                    if name_of(member) == self._name:
                        yield above + offset_of(member, "DW_AT_data_member_location"), member
                continue
            if child.tag != "DW_TAG_member" or FIXED & set(child.attributes):
                continue
            offset = -1
            if above >= 0:
                offset = above + offset_of(child, "DW_AT_data_member_location")
            name = name_of(child)
            if name and name in (self._name, f"__{self._name}" * self._name.isdigit()):
                yield offset, child
            elif not name:
                inner = stripped(child)
                if inner is not None and inner.tag in COMPOSITES:
                    yield from self._own(inner, offset, depth + 1)

    def _children(self, die: DIE, depth: int) -> Iterator[DIE]:
        if depth > MAX_DEPTH:
            raise NoValueError("has a type of itself")
        for child in children(die):
            self._seen += 1
            if self._seen > MAX_MEMBERS:
                raise NoValueError("has too many members")
            yield child


def member_of(die: DIE, name: str) -> Part | None:
    """A member by name, also of what has no name itself, and of bases; None if there is none.
    Raises NoValueError, also for a name that is ambiguous."""
    *bases, last = name.split("::")
    above = 0
    for base in bases:
        place, die = _base(die, base)
        above += place
    found = _Lookup(last).all(die)
    if len(found) > 1:
        names = [f"{one.through}::{last}" for one in found]
        if len(set(names)) < len(names):
            raise NoValueError(f"has {last!r} several times, by way of one base")
        raise NoValueError(f"has {last!r} in {len(found)} bases", f"write {' or '.join(names)}")
    if not found:
        return None
    if found[0].offset < 0:
        raise NoValueError(f"has {last!r} in a virtual base, whose place only its vtable tells")
    member = found[0].die
    return Part(offset=above + found[0].offset + _bit_offset(member), die=stripped(member))


def members_of(die: DIE) -> list[str]:
    """The names of all members: a type's own first, then those of its bases."""
    waiting, seen, out = [(die, 0)], 0, list[str]()
    while waiting:
        one, depth = waiting.pop(0)
        if depth > MAX_DEPTH:
            raise NoValueError("has a type of itself")
        for child in children(one):
            seen += 1
            if seen > MAX_MEMBERS:
                raise NoValueError("has too many members")
            if child.tag == VARIANTS:
                out += [name for _, member in _variants(child) if (name := name_of(member))]
            if child.tag not in ("DW_TAG_member", "DW_TAG_inheritance"):
                continue
            if FIXED & set(child.attributes):
                continue
            if child.tag == "DW_TAG_member" and (name := name_of(child)):
                out.append(name)
                continue
            inner = stripped(child)
            if inner is not None and inner.tag in COMPOSITES:
                waiting.append((inner, depth + 1))
    return list(dict.fromkeys(out))


def choice_of(die: DIE) -> Choice | None:
    """The discriminant of an enum of Rust's; None for any other type. Raises NoValueError for
    one that only ever is one variant, or whose variants have no numbers."""
    part = next((one for one in children(die) if one.tag == VARIANTS), None)
    if part is None:
        return None
    variants = list(_variants(part))
    held = part.attributes.get("DW_AT_discr")
    if held is None:
        known = [name_of(member) for _, member in variants]
        raise NoValueError("is an enum", f"name a variant: {some_of(known)}" if known else "")
    told = part.get_DIE_from_attribute("DW_AT_discr")
    type_ = stripped(told)
    bits = 8 * size_of(type_)
    names, others = dict[int, str](), list[str]()
    for variant, member in variants:
        if "DW_AT_discr_list" in variant.attributes:
            raise NoValueError("is an enum whose variants have ranges of numbers")
        if "DW_AT_discr_value" in variant.attributes:
            value = number(variant, "DW_AT_discr_value", 0) % (1 << bits)
            names.setdefault(value, name_of(member))
        else:
            others.append(name_of(member))
    return Choice(
        part=Part(offset=offset_of(told, "DW_AT_data_member_location"), die=type_),
        names=tuple(sorted(names.items())),
        other=others[0] if len(others) == 1 else "",
    )


def unknown_member(name: str, known: list[str]) -> NoValueError:
    """The error for a member that a type does not have."""
    hint = meant(near(name, known), f"it has {some_of(known)}" if known else "")
    return NoValueError(f"has no member {name!r}", hint)


def _variants(part: DIE) -> Iterator[tuple[DIE, DIE]]:
    """The variants of an enum, and the member that has what belongs to each."""
    for count, variant in enumerate(children(part)):
        if count > MAX_MEMBERS:
            raise NoValueError("has too many variants")
        if variant.tag == "DW_TAG_variant":
            for member in children(variant):
                if member.tag == "DW_TAG_member":
                    yield variant, member
                    break


def _base(die: DIE, name: str) -> tuple[int, DIE]:
    """A base by name, directly or further up, and its offset. Raises NoValueError."""
    waiting, found, seen = [(0, die, 0)], list[tuple[int, DIE]](), 0
    known: list[str] = []
    while waiting:
        above, one, depth = waiting.pop(0)
        for child in children(one):
            seen += 1
            if depth > MAX_DEPTH or seen > MAX_MEMBERS:
                raise NoValueError("has too many bases")
            inner = stripped(child) if child.tag == "DW_TAG_inheritance" else None
            if inner is None or inner.tag not in COMPOSITES or FIXED & set(child.attributes):
                continue
            at = above + offset_of(child, "DW_AT_data_member_location")
            known.append(name_of(inner))
            if known[-1] == name:
                found.append((at, inner))
            else:
                waiting.append((at, inner, depth + 1))
    if not found:
        hint = meant(near(name, known), f"it has {some_of(known)}" if known else "")
        raise NoValueError(f"has no base {name!r}", hint)
    if len(found) > 1:
        raise NoValueError(f"has the base {name!r} {len(found)} times")
    return found[0]


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
