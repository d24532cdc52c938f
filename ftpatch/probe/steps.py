# SPDX-License-Identifier: MIT
"""Fetches as the runtime's steps: struct fetch of stubs/runtime/probes.h."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from ftpatch.arch.registers import Registers
from ftpatch.errors import UsageError
from ftpatch.layout import constants
from ftpatch.probe.definition import SIGNED, TYPES, Fetch, Source

__all__ = ["Own", "Row", "Step", "fetch_steps", "form", "signed", "value_steps"]

TEST_SIGNED = constants["TEST_SIGNED"]


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
    PLUS = constants["FETCH_PLUS"]
    TID = constants["FETCH_TID"]
    COUNT = constants["FETCH_COUNT"]
    FIRST = constants["FETCH_FIRST"]
    KEEP = constants["FETCH_KEEP"]
    TEST = constants["FETCH_TEST"]
    MATCH = constants["FETCH_MATCH"]
    TEXT = constants["FETCH_TEXT"]
    CALLER = constants["FETCH_CALLER"]
    LATENCY = constants["FETCH_LATENCY"]
    KEY = constants["FETCH_KEY"]
    NAME = constants["FETCH_NAME"]
    SUM = constants["FETCH_SUM"]


Row = tuple[Step, int, int]
"""A step, its register or size in bytes, and its number."""


@dataclass(frozen=True)
class Own:
    """Queries about a probe's own image: a symbol's address (None: undefined), whether ``size``
    bytes at an address are in a segment, and a hint for an undefined symbol (``like``)."""

    address: Callable[[str], int | None]
    has: Callable[[int, int], bool]
    like: Callable[[str], str] = lambda name: ""


def fetch_steps(fetch: Fetch, ip: int, registers: Registers, own: Own) -> list[Row]:
    """Translate a fetch of a probe at link address ``ip``; the last step stores it. Raises
    UsageError for an undefined symbol."""
    first = _first(fetch, ip, registers, own)
    return [first, *_reads(fetch, first, own)]


def value_steps(rows: list[Row]) -> list[Row]:
    """Those of a fetch's steps that give its value, or the address of its string."""
    *steps, (step, _, offset) = rows
    return [*steps, (Step.PLUS, 0, offset)] if step == Step.STRING else steps


def form(fetch: Fetch) -> int:
    """The bytes of a value that count, and whether they have a sign (enum probe_test)."""
    return TYPES[fetch.type] | TEST_SIGNED * (fetch.type in SIGNED)


def _first(fetch: Fetch, ip: int, registers: Registers, own: Own) -> Row:
    """Translate the word a fetch starts with."""
    match fetch.source:
        case Source.REGISTER if fetch.text in registers.pc:
            return (Step.ADDRESS, 0, ip)
        case Source.REGISTER:
            return (Step.REGISTER, registers.numbers[fetch.text], 0)
        case Source.STACK:
            return (Step.REGISTER, registers.stack, 0)
        case Source.STACK_WORD:
            return (Step.STACK, 0, fetch.value)
        case Source.RETVAL:
            return (Step.REGISTER, registers.result, 0)
        case Source.ARGUMENT if fetch.value > len(registers.arguments):
            number = fetch.value - len(registers.arguments) - 1 + registers.behind
            return (Step.STACK, 0, number)
        case Source.ARGUMENT:
            return (Step.REGISTER, registers.arguments[fetch.value - 1], 0)
        case Source.SYMBOL:
            address = own.address(fetch.text)
            if address is None:
                raise UsageError(None, f"@{fetch.text}: no such symbol", own.like(fetch.text))
            return (Step.ADDRESS, 0, address + fetch.value)
        case Source.ADDRESS:
            return (Step.ADDRESS, 0, fetch.value)
        case Source.TID | Source.CALLER | Source.LATENCY:
            return (Step[fetch.source.name], 0, 0)
        case _:
            return (Step.NUMBER, 0, signed(fetch.value))


def signed(number: int) -> int:
    """The number of 64 bits, signed as in the runtime."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _reads(fetch: Fetch, first: Row, own: Own) -> list[Row]:
    """Translate the reads after the first word; the last step stores."""
    steps: list[Row] = []
    width = TYPES[fetch.type]
    for number, offset in enumerate(fetch.reads):
        last = number + 1 == len(fetch.reads)
        if last and fetch.type == "string":
            return [*steps, (Step.STRING, 0, offset)]
        size = width if last else 8
        mapped = number == 0 and first[0] == Step.ADDRESS and own.has(first[2] + offset, size)
        steps.append((Step.OWN if mapped else Step.READ, size, offset))
    return [*steps, (Step.STORE, width or 8, 0)]
