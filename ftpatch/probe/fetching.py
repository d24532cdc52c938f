# SPDX-License-Identifier: MIT
"""All that a probe does at a hit, as the runtime's steps: its filter, then its fetches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ftpatch.arch.registers import Registers
from ftpatch.errors import UsageError
from ftpatch.layout import constants
from ftpatch.probe.definition import Definition, Source
from ftpatch.probe.filter_steps import filter_steps
from ftpatch.probe.steps import Own, Row, Step, fetch_steps, signed

__all__ = ["MAX_WORDS", "STRING_WORDS", "Fetching", "fetching"]

STRING_WORDS = constants["STRING_WORDS"]
MAX_WORDS = constants["VALUES"] - 3
"""Maximum words of values per event: VALUES less the three that an r probe's event starts with."""


@dataclass(frozen=True)
class Fetching:
    """Translated fetches. ``steps``: the first ``filter`` of them are the filter's; ``words`` of
    values; ``faults``: reads may fault, and a leading word tells which did."""

    steps: tuple[Row, ...]
    words: int
    faults: bool
    filter: int

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
    tests: list[Row] = []
    if definition.filter:
        tests = filter_steps(definition.filter, lambda one: fetch_steps(one, ip, registers, own))
    steps: list[Row] = []
    words = 0
    for fetch in definition.fetches:
        if fetch.source == Source.COMM:
            continue  # stored in the trace's header
        steps += fetch_steps(fetch, ip, registers, own)
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
    return Fetching((*tests, *steps), words, faults, len(tests))
