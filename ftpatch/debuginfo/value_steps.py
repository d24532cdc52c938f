# SPDX-License-Identifier: MIT
"""Steps from a value to its parts: to members, to elements, to what it points to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ftpatch.core.token import Token
from ftpatch.debuginfo.dies import UnusableError
from ftpatch.debuginfo.source_names import Step
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_parts import (
    POINTERS,
    REFERENCES,
    Part,
    element_of,
    member_of,
    members_of,
    size_of,
    stripped,
    unknown_member,
)
from ftpatch.debuginfo.value_places import NoValueError, Place

__all__ = ["dereferenced", "refusing", "taken"]


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


def _member(place: Place, part: Part, step: Step) -> tuple[Place, Part]:
    die = part.die
    if die is None or die.tag not in COMPOSITES:
        raise NoValueError("is no structure" if die is not None else "points to void")
    if "DW_AT_declaration" in die.attributes:
        hint = "take the bytes by their offset"
        raise NoValueError("is a structure that this source does not define", hint)
    found = member_of(die, step.member)
    if found is None:
        raise unknown_member(step.member, members_of(die))
    return _moved(place, part, found)


def _moved(place: Place, part: Part, found: Part) -> tuple[Place, Part]:
    return dereferenced(place, replace(found, offset=part.offset + found.offset))
