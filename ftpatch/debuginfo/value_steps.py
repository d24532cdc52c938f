# SPDX-License-Identifier: MIT
"""Steps from a value to its parts: to members, to elements, to what it points to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ftpatch.core.token import Token
from ftpatch.debuginfo.dies import UnusableError, is_rust, name_of
from ftpatch.debuginfo.source_names import Step
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_members import member_of, members_of, unknown_member
from ftpatch.debuginfo.value_parts import (
    POINTERS,
    REFERENCES,
    Part,
    element_of,
    require_defined,
    size_of,
    stripped,
)
from ftpatch.debuginfo.value_places import NoValueError, Place

__all__ = ["dereferenced", "refusing", "taken"]

MAX_FOLLOWED = 8
"""Pointers to pointers that a ``.`` of Rust's follows."""
SLICES = ("&[", "&mut [", "*const [", "*mut [", "alloc::boxed::Box<[", "Box<[")
"""Names of slices begin so: what has ``data_ptr`` and ``length``."""


@contextmanager
def refusing(token: Token, what: Token | None = None) -> Iterator[None]:
    """Raise UsageError, which names a token, where ``what`` (or it) has no value."""
    text = (what or token).text
    try:
        yield
    except NoValueError as error:
        raise token.refuse(f"{text} {error.reason}", error.hint) from None
    except UnusableError:
        raise token.refuse(f"{text} has a type of another file") from None


def taken(place: Place, part: Part, steps: Sequence[Step]) -> tuple[Place, Part]:
    """Take steps from a part of what is at a place. Raises UsageError, which names the step."""
    for step in steps:
        with refusing(step.token, step.before):
            place, part = _step(place, part, step)
    return place, part


def dereferenced(place: Place, part: Part) -> tuple[Place, Part]:
    """Follow a reference; a part that is none stays as it is. Raises NoValueError."""
    if part.die is not None and part.die.tag in REFERENCES:
        return place.part(part.offset).pointed(), Part(offset=0, die=stripped(part.die))
    return place, part


def _step(place: Place, part: Part, step: Step) -> tuple[Place, Part]:
    die = part.die
    is_pointer = die is not None and die.tag in POINTERS
    is_array = die is not None and die.tag == "DW_TAG_array_type"
    before = step.before.text
    if die is not None and is_rust(die):
        if step.mark == ".":
            return _member(*_followed(place, part), step)
        if step.mark == "[" and (is_pointer or die.tag in COMPOSITES):
            return _sliced(*_followed(place, part), step)
    if step.mark == "[" and is_array:
        return _moved(place, part, element_of(die, step.index, part.dimension))
    if step.mark == "." and is_pointer:
        raise NoValueError("is a pointer", f"write {before}->{step.member}")
    if step.mark == "->" and not is_pointer:
        raise NoValueError("is no pointer", f"write {before}.{step.member}")
    if step.mark in ("[", "*") and not is_pointer:
        if step.mark == "*" and is_array:
            return _moved(place, part, element_of(die, 0, part.dimension))
        raise NoValueError("is no pointer")
    if step.mark != ".":
        inner = stripped(die)
        place, part = place.part(part.offset).pointed(), Part(offset=0, die=inner)
        if step.mark == "[":
            part = replace(part, offset=step.index * size_of(inner))
        if step.mark != "->":
            return dereferenced(place, part)
    return _member(place, part, step)


def _followed(place: Place, part: Part) -> tuple[Place, Part]:
    """Follow pointers, as Rust does by itself."""
    for _ in range(MAX_FOLLOWED):
        if part.die is None or part.die.tag not in POINTERS:
            break
        place, part = place.part(part.offset).pointed(), Part(offset=0, die=stripped(part.die))
    return place, part


def _sliced(place: Place, part: Part, step: Step) -> tuple[Place, Part]:
    """An element of Rust's slices, or of an array behind references."""
    die = part.die
    if die is not None and die.tag == "DW_TAG_array_type":
        return _moved(place, part, element_of(die, step.index, part.dimension))
    data = None
    if die is not None and die.tag in COMPOSITES and name_of(die).startswith(SLICES):
        data = member_of(die, "data_ptr")
    if data is None or data.die is None or data.die.tag not in POINTERS:
        raise NoValueError("is no array and no slice")
    if step.index < 0:
        raise NoValueError("has no such element", "they count from 0")
    inner = stripped(data.die)
    place = place.part(part.offset + data.offset).pointed()
    return place, Part(offset=step.index * size_of(inner), die=inner)


def _member(place: Place, part: Part, step: Step) -> tuple[Place, Part]:
    die = part.die
    if die is None or die.tag not in COMPOSITES:
        raise NoValueError("is no structure" if die is not None else "points to void")
    require_defined(die)
    found = member_of(die, step.member)
    if found is None:
        raise unknown_member(step.member, members_of(die))
    return _moved(place, part, found)


def _moved(place: Place, part: Part, found: Part) -> tuple[Place, Part]:
    return dereferenced(place, replace(found, offset=part.offset + found.offset))
