# SPDX-License-Identifier: MIT
"""All that a probe does at a hit, as the runtime's steps: its filter, then its fetches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ftpatch.arch.registers import Registers
from ftpatch.errors import UsageError
from ftpatch.inject.filter_steps import filter_steps
from ftpatch.inject.runtime_steps import Row, Step, form, signed, value_steps
from ftpatch.layout import constants, structure
from ftpatch.probe.definition import Definition, Fetch, Hist, Source, Within
from ftpatch.probe.steps import Own, fetch_steps

__all__ = ["MAX_WORDS", "STRING_WORDS", "Fetching", "entry_size", "fetching"]

STRING_WORDS = constants["STRING_WORDS"]
LOG2 = constants["HIST_LOG2"]
ENTRY = structure("trace_hist")
WORD = 8
MAX_WORDS = constants["VALUES"] - 3
"""Maximum words of values per event: VALUES less the three that an r probe's event starts with."""


@dataclass(frozen=True)
class Fetching:
    """Translated fetches. ``steps``: the first ``filter`` of them are the filter's, and the last
    ``hist`` those of a histogram with so many ``entries`` of ``entry_size`` bytes; ``words`` of
    values; ``faults``: reads may fault, and a leading word tells which did; ``calls``: the calls
    that led to a hit follow."""

    steps: tuple[Row, ...]
    words: int
    faults: bool
    filter: int = 0
    hist: int = 0
    entries: int = 0
    entry_size: int = 0
    calls: bool = False

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

    def within(_: Within) -> list[Row]:
        return [(Step.WITHIN, 0, 0)]  # its function: probe/within.py

    filter = definition.filter
    tests = filter_steps(filter, load, within, registers.order) if filter else []
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
    frames = definition.hist.keys if definition.hist else ()
    stacks = any(key.fetch.source is Source.FRAMES for key in frames)
    if (definition.stack or stacks) and registers.copied is None:
        reason = f"probe {definition.name}: stacks are not recorded on this architecture"
        raise UsageError(None, reason, "leave `stack` out")
    if not registers.framed and (stacks or (definition.stack and definition.stack.frames)):
        reason = f"probe {definition.name}: frames do not lead to one another on this architecture"
        raise UsageError(None, reason, "use `stack`, without `fp`")
    if definition.stack:
        steps.append((Step.CALLS, definition.stack.depth if definition.stack.frames else 0, 0))
    sums = _hist_steps(definition.hist, load) if definition.hist else []
    entries = definition.hist.size if definition.hist else 0
    rows = (*tests, *steps, *sums)
    return Fetching(
        rows,
        words,
        faults,
        filter=len(tests),
        hist=len(sums),
        entries=entries,
        entry_size=entry_size(definition.hist) if definition.hist else 0,
        calls=definition.stack is not None,
    )


def entry_size(hist: Hist) -> int:
    """The bytes of a histogram's entry: struct trace_hist, and the words of its key behind that."""
    return ENTRY.itemsize + WORD * max(0, _key_words(hist) - int(ENTRY["key"].shape[0]))


def _key_words(hist: Hist) -> int:
    return sum(
        STRING_WORDS
        if one.fetch.type == "string"
        else one.fetch.value
        if one.fetch.source is Source.FRAMES
        else 1
        for one in hist.keys
    )


def _hist_steps(hist: Hist, load: Callable[[Fetch], list[Row]]) -> list[Row]:
    rows: list[Row] = []
    for key in hist.keys:
        if key.fetch.source is Source.FRAMES:
            rows.append((Step.FRAMES, key.fetch.value, 0))
            continue
        rows += value_steps(load(key.fetch))
        if key.fetch.type == "string":
            rows.append((Step.NAME, 0, 0))
        else:
            rows.append((Step.KEY, form(key.fetch) | LOG2 * key.log2, key.buckets))
    for value in hist.values:
        rows += [*value_steps(load(value)), (Step.SUM, form(value), 0)]
    return rows
