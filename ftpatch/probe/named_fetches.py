# SPDX-License-Identifier: MIT
"""Values that the source names, as fetches."""

from __future__ import annotations

from dataclasses import replace

from ftpatch.core.token import Token
from ftpatch.debuginfo.dies import UnusableError
from ftpatch.debuginfo.named_values import NamedValues
from ftpatch.debuginfo.source_names import parse_source_name
from ftpatch.debuginfo.types import COMPOSITES
from ftpatch.debuginfo.value_members import Choice, choice_of
from ftpatch.debuginfo.value_parts import POINTERS, Part, size_of
from ftpatch.debuginfo.value_places import InMemory, NoValueError, Place, Scattered, Word
from ftpatch.debuginfo.value_steps import refusing
from ftpatch.errors import InputError
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import FLOATS, TYPES, Fetch, Source
from ftpatch.probe.value_types import Shown, chosen, is_float, is_wide, shown, text_in

__all__ = ["NamedFetches"]


class NamedFetches:
    """Fetches names at one place of a program."""

    def __init__(self, values: NamedValues) -> None:
        self._values = values

    def __call__(self, value: Token, kind: Token | None) -> Fetch:
        """Fetch what a name stands for; ``kind``: the TYPE behind it. Raises UsageError, and
        InputError for debug information that cannot be read."""
        place, part = self._values.value(parse_source_name(value))
        with self._values.readable(), refusing(value):
            return _fetch(place, part, kind)

    def returned(self, value: Token) -> Fetch | None:
        """Fetch what the function returns, if that is a float or a number of two words; None for
        anything else, also where the debug information does not tell. Raises UsageError."""
        try:
            with self._values.readable():
                die = self._values.result()
                held = is_float(die) or is_wide(die)
        except (InputError, NoValueError, UnusableError):
            held = False
        return self(value, None) if held else None

    def known(self) -> list[tuple[str, Fetch | NoValueError]]:
        """All that can be named there, but for globals, with what is fetched, or why it is not."""
        out: list[tuple[str, Fetch | NoValueError]] = []
        with self._values.readable():
            for name, found in self._values.known():
                try:
                    if isinstance(found, NoValueError):
                        raise found
                    out.append((name, replace(_any(*found), name=name)))
                except NoValueError as error:
                    out.append((name, error))
                except UnusableError:
                    out.append((name, NoValueError("has a type of another file")))
        return out


def _any(place: Place, part: Part) -> Fetch:
    """Fetch a value; a VARIABLE for one of which only members can be fetched."""
    part = text_in(part)
    if part.die is None or part.die.tag not in COMPOSITES or _choice(part) is not None:
        return _fetch(place, part, None)
    if not isinstance(place, Scattered):
        place.word(1)
    return Fetch("", Source.VARIABLE)


def _fetch(place: Place, part: Part, kind: Token | None) -> Fetch:
    part = text_in(part)
    if kind is None and (choice := _choice(part)) is not None:
        place = place.part(part.offset + choice.part.offset)
        return _fetched(place, chosen(choice))
    place = place.part(part.offset)
    if kind is not None:
        return _typed(place, part, kind)
    return _fetched(place, shown(part.die, part.dimension))


def _choice(part: Part) -> Choice | None:
    is_composite = part.die is not None and part.die.tag in COMPOSITES
    return choice_of(part.die) if is_composite else None


def _typed(place: Place, part: Part, kind: Token) -> Fetch:
    """Fetch it with the TYPE that was asked for."""
    die = part.die
    if kind.text not in TYPES:
        hint = meant(near(kind.text, TYPES), f"one of {', '.join(TYPES)}")
        raise kind.refuse("unknown type is specified", hint)
    is_array = die is not None and die.tag == "DW_TAG_array_type"
    if kind.text == "string":
        if die is not None and die.tag in POINTERS:
            return _fetched(place, Shown(type="string", size=size_of(die), follow=True))
        if not is_array:
            raise NoValueError("is no string")
        size = size_of(die, part.dimension)
        return _fetched(place, Shown(type="string", size=0, room=size))
    size = size_of(die, part.dimension)
    if TYPES[kind.text] > size:
        raise kind.refuse(f"it has {size} bytes", f"at most x{8 * size}")
    if kind.text in FLOATS and TYPES[kind.text] != size:
        raise kind.refuse(f"it has {size} bytes", f"write f{8 * size}, or leave out the type")
    return _fetched(place, Shown(type=kind.text, size=TYPES[kind.text]))


def _fetched(place: Place, how: Shown) -> Fetch:
    if how.type != "string":
        return replace(_read(place.word(how.size)), type=how.type, names=how.names, other=how.other)
    at = place.pointed() if how.follow else place
    if not isinstance(at, InMemory):
        raise NoValueError("is a string in registers, which cannot be fetched")
    room = how.room if how.room <= 63 else 0
    return replace(_read(at.word(0)), type="string", room=room)


def _read(word: Word) -> Fetch:
    if word.upper:
        return Fetch("", Source.PAIR, f"{word.upper}:{word.start}")
    if isinstance(word.start, str):
        return Fetch("", Source.REGISTER, word.start, reads=word.reads)
    source = Source.ADDRESS if word.reads else Source.IMMEDIATE
    return Fetch("", source, "", word.start, word.reads)
