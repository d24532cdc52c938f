# SPDX-License-Identifier: MIT
"""The calls that filters ask for by ``within()`` and ``$depth``: those that ``r`` probes of the
same command follow, whose frames tell the runtime what calls a thread is in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ftpatch.core.token import Token
from ftpatch.errors import Refused, UsageError
from ftpatch.inject.runtime_steps import Step
from ftpatch.names.functions import Functions
from ftpatch.probe.debug_names import DebugNames
from ftpatch.probe.definition import (
    Compare,
    Definition,
    Fetch,
    Filter,
    Join,
    Not,
    Source,
    Within,
)
from ftpatch.probe.found import Found
from ftpatch.probe.function_place import is_library
from ftpatch.probe.tables import in_tables

__all__ = ["Searched", "with_calls"]


@dataclass(frozen=True, kw_only=True)
class Searched:
    """An image and its probes. ``names``: what a probe may call it, nothing for the program,
    besides its ``path``; ``above``: how much its addresses in the runtime's tables are above its
    link addresses, modulo 2**64; ``rank``: that of its probes, where several images may have the
    same addresses there."""

    functions: Functions
    found: Sequence[Found]
    names: Collection[str] = ("",)
    path: Path = Path()
    above: int = 0
    rank: int = 0


def with_calls(images: Sequence[Searched], refused: Refused) -> list[Sequence[Found]]:
    """Give the steps of ``within()`` their functions' addresses in the runtime's tables. Return the
    probes of each image without what is ``refused``, nor what would be within that; nor, where
    nothing follows calls, what asks for their depth."""
    left = _number(images)
    while True:
        calls, before = _Calls(images), left
        images = [replace(one, found=[*_completed(one, calls, refused)]) for one in images]
        left = _number(images)
        if left == before:
            return [one.found for one in images]


class _Calls:
    """The calls that ``r`` probes follow."""

    def __init__(self, images: Sequence[Searched]) -> None:
        self._images = [(one, DebugNames(one.functions), _followed(one)) for one in images]

    def place(self, within: Within) -> int:
        """Find a function in the runtime's tables. Raises UsageError, which names the offending
        token and its column, if no ``r`` probe is on it."""
        for image, names, followed in self._images:
            library = within.library
            if library not in image.names and not is_library(library, image.names, image.path):
                continue
            address = within.address
            if within.symbol is not None:
                try:
                    start = image.functions.names.address(names.spelled(within.symbol))
                except UsageError as error:
                    raise within.token.refuse(error.reason, error.hint) from None
                address = image.functions.chosen.get(start, start)
            if address in followed:
                return in_tables((address + image.above) % (1 << 64), image.rank)
        hint = f"add one, as in 'r {within.text}'"
        raise within.token.refuse("no r probe is on the function of within()", hint)

    def require_any(self, definition: Definition) -> None:
        """Raise UsageError for a probe whose filter asks how deep calls are that none follows."""
        if not _asks_depth(definition.filter) or any(followed for _, _, followed in self._images):
            return
        depth, text = Source.DEPTH.value, definition.text
        at = text.rindex(depth)
        hint = "add one, as in 'r FUNC': its calls are counted"
        token = Token(text, at, at + len(depth))
        raise token.refuse(f"no r probe follows the calls of {depth}", hint)


def _followed(image: Searched) -> set[int]:
    """The link addresses of functions with ``r`` probes."""
    places = [one.location for one in image.found]
    return {one.ip for one in places if any(probe.kind == "r" for probe in one.definitions)}


def _number(images: Sequence[Searched]) -> int:
    return sum(len(one.fetchings) for image in images for one in image.found)


def _completed(image: Searched, calls: _Calls, refused: Refused) -> Iterator[Found]:
    for one in image.found:
        definitions, fetchings = [], []
        for definition, fetching in zip(one.location.definitions, one.fetchings, strict=True):
            with refused.told(image.functions.image.path):
                calls.require_any(definition)
                places = iter([calls.place(each) for each in _tests(definition.filter)])
                steps = tuple(
                    (step, what, next(places) if step == Step.WITHIN else value)
                    for step, what, value in fetching.steps
                )
                fetchings.append(replace(fetching, steps=steps))
                definitions.append(definition)
        if definitions:
            location = replace(one.location, definitions=tuple(definitions))
            yield Found(location=location, fetchings=tuple(fetchings))


def _asks_depth(filter: Filter | None) -> bool:
    match filter:
        case Not(part):
            return _asks_depth(part)
        case Join(_, parts):
            return any(map(_asks_depth, parts))
        case Compare(left, _, right):
            fetches = [one for one in (left, right) if isinstance(one, Fetch)]
            return any(one.source is Source.DEPTH for one in fetches)
    return False


def _tests(filter: Filter | None) -> Iterator[Within]:
    """The ``within()`` of a filter, in the order of their steps."""
    match filter:
        case Within():
            yield filter
        case Not(part):
            yield from _tests(part)
        case Join(_, parts):
            for part in parts:
                yield from _tests(part)
