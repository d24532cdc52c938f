# SPDX-License-Identifier: MIT
"""Fetches as the runtime's steps: struct fetch of stubs/runtime/probes.h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ftpatch.arch.registers import Registers
from ftpatch.errors import UsageError
from ftpatch.layout import constants
from ftpatch.probe.definition import TYPES, Definition, Fetch, Source

__all__ = ["Fetching", "Own", "Step", "fetching"]

STRING_WORDS = constants["STRING_WORDS"]
MAX_WORDS = constants["VALUES"] - 3
"""Maximum words of values per event: VALUES less the three that an r probe's event starts with."""


class Step(IntEnum):
    """enum probe_fetch."""

    REGISTER = constants["FETCH_REGISTER"]
    STACK = constants["FETCH_STACK"]
    NUMBER = constants["FETCH_NUMBER"]
    ADDRESS = constants["FETCH_ADDRESS"]
    READ = constants["FETCH_READ"]
    OWN = constants["FETCH_OWN"]
    STRING = constants["FETCH_STRING"]
    STORE = constants["FETCH_STORE"]


@dataclass(frozen=True)
class Own:
    """Queries about a probe's own image: a symbol's address (None: undefined), whether ``size``
    bytes at an address are in a segment, and a hint for an undefined symbol (``like``)."""

    address: Callable[[str], int | None]
    has: Callable[[int, int], bool]
    like: Callable[[str], str] = lambda name: ""


@dataclass(frozen=True)
class Fetching:
    """Translated fetches. ``steps``: (step, register or size in bytes, number); ``words`` of
    values; ``faults``: reads may fault, and a leading word tells which did."""

    steps: tuple[tuple[Step, int, int], ...]
    words: int
    faults: bool

    def above(self, distance: int) -> Fetching:
        """The same for an image whose link addresses are ``distance`` higher, modulo 2**64."""
        steps = tuple(
            (step, what, _signed(value + distance) if step == Step.ADDRESS else value)
            for step, what, value in self.steps
        )
        return Fetching(steps, self.words, self.faults)


def fetching(definition: Definition, ip: int, registers: Registers, own: Own) -> Fetching:
    """Translate the fetches of a probe at link address ``ip``. Raises UsageError for an undefined
    symbol, or for more than an event can hold."""
    steps: list[tuple[Step, int, int]] = []
    words = 0
    for fetch in definition.fetches:
        if fetch.source == Source.COMM:
            continue  # stored in the trace's header
        steps += _first(fetch, ip, registers, own)
        steps += _reads(fetch, steps[-1], own)
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
    return Fetching(tuple(steps), words, faults)


def _first(fetch: Fetch, ip: int, registers: Registers, own: Own) -> list[tuple[Step, int, int]]:
    """Translate the word a fetch starts with."""
    match fetch.source:
        case Source.REGISTER if fetch.text in registers.pc:
            return [(Step.ADDRESS, 0, ip)]
        case Source.REGISTER:
            return [(Step.REGISTER, registers.numbers[fetch.text], 0)]
        case Source.STACK:
            return [(Step.REGISTER, registers.stack, 0)]
        case Source.STACK_WORD:
            return [(Step.STACK, 0, fetch.value)]
        case Source.RETVAL:
            return [(Step.REGISTER, registers.result, 0)]
        case Source.ARGUMENT if fetch.value > len(registers.arguments):
            number = fetch.value - len(registers.arguments) - 1 + registers.behind
            return [(Step.STACK, 0, number)]
        case Source.ARGUMENT:
            return [(Step.REGISTER, registers.arguments[fetch.value - 1], 0)]
        case Source.SYMBOL:
            address = own.address(fetch.text)
            if address is None:
                raise UsageError(None, f"@{fetch.text}: no such symbol", own.like(fetch.text))
            return [(Step.ADDRESS, 0, address + fetch.value)]
        case Source.ADDRESS:
            return [(Step.ADDRESS, 0, fetch.value)]
        case _:
            return [(Step.NUMBER, 0, _signed(fetch.value))]


def _signed(number: int) -> int:
    """The number of 64 bits, signed as in the runtime."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _reads(fetch: Fetch, first: tuple[Step, int, int], own: Own) -> list[tuple[Step, int, int]]:
    """Translate the reads after the first word; the last step stores."""
    steps: list[tuple[Step, int, int]] = []
    width = TYPES[fetch.type]
    for number, offset in enumerate(fetch.reads):
        last = number + 1 == len(fetch.reads)
        if last and fetch.type == "string":
            return [*steps, (Step.STRING, 0, offset)]
        size = width if last else 8
        mapped = number == 0 and first[0] == Step.ADDRESS and own.has(first[2] + offset, size)
        steps.append((Step.OWN if mapped else Step.READ, size, offset))
    return [*steps, (Step.STORE, width or 8, 0)]
