# SPDX-License-Identifier: MIT
"""All that a probe does at a hit, as the runtime's steps: its filter, then its fetches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ftpatch.arch.registers import Registers
from ftpatch.errors import UsageError
from ftpatch.layout import constants
from ftpatch.probe.definition import Definition, Fetch, Hist, Source
from ftpatch.probe.filter_steps import filter_steps
from ftpatch.probe.steps import Own, Row, Step, fetch_steps, form, signed, value_steps

__all__ = ["MAX_WORDS", "STRING_WORDS", "Fetching", "fetching"]

STRING_WORDS = constants["STRING_WORDS"]
LOG2 = constants["HIST_LOG2"]
MAX_WORDS = constants["VALUES"] - 3
"""Maximum words of values per event: VALUES less the three that an r probe's event starts with."""


@dataclass(frozen=True)
class Fetching:
    """Translated fetches. ``steps``: the first ``filter`` of them are the filter's, and the last
    ``hist`` those of a histogram with so many ``entries``; ``words`` of values; ``faults``: reads
    may fault, and a leading word tells which did."""

    steps: tuple[Row, ...]
    words: int
    faults: bool
    filter: int = 0
    hist: int = 0
    entries: int = 0

    def above(self, distance: int) -> Fetching:
        """The same for an image whose link addresses are ``distance`` higher, modulo 2**64."""
        steps = tuple(
            (step, what, signed(value + distance) if step == Step.ADDRESS else value)
            for step, what, value in self.steps
        )
        return replace(self, steps=steps)


def fetching(definition: Definition, ip: int, registers: Registers, own: Own) -> Fetching:
    """Translate a probe's fetches and its filter, at link address ``ip``. Raises UsageError for an
    undefined symbol, or for more than an event can hold."""

    def load(fetch: Fetch) -> list[Row]:
        return fetch_steps(fetch, ip, registers, own)

    tests = filter_steps(definition.filter, load) if definition.filter else []
    steps: list[Row] = []
    words = 0
    for fetch in () if definition.hist else definition.fetches:
        if fetch.source == Source.COMM:
            continue  # stored in the trace's header
        steps += load(fetch)
        words += STRING_WORDS if fetch.type == "string" else 1
    faults = any(step in (Step.READ, Step.STACK) for step, _, _ in steps)
    words += faults
    if words > MAX_WORDS:
        raise UsageError(
            None,
            f"probe {definition.name}: its values take {words} words, "
            f"but an event holds {MAX_WORDS}",
            f"fetch less (a string takes {STRING_WORDS})",
        )
    sums = _hist_steps(definition.hist, load) if definition.hist else []
    entries = definition.hist.size if definition.hist else 0
    rows = (*tests, *steps, *sums)
    return Fetching(rows, words, faults, filter=len(tests), hist=len(sums), entries=entries)


def _hist_steps(hist: Hist, load: Callable[[Fetch], list[Row]]) -> list[Row]:
    rows: list[Row] = []
    for key in hist.keys:
        rows += value_steps(load(key.fetch))
        if key.fetch.type == "string":
            rows.append((Step.NAME, 0, 0))
        else:
            rows.append((Step.KEY, form(key.fetch) | LOG2 * key.log2, key.buckets))
    for value in hist.values:
        rows += [*value_steps(load(value)), (Step.SUM, form(value), 0)]
    return rows
