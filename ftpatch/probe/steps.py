# SPDX-License-Identifier: MIT
"""Fetches as the runtime's steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ftpatch.arch.registers import Registers
from ftpatch.errors import UsageError
from ftpatch.inject.runtime_steps import Row, Step, signed
from ftpatch.probe.definition import DEFAULT_TYPE, FLOATS, TYPES, Fetch, Source
from ftpatch.probe.text import value_text

__all__ = ["Own", "fetch_steps"]

SINGLE = "f32"


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
    if (pair := _pair(fetch, registers)) is not None:
        return pair
    first = _first(fetch, ip, registers, own)
    return [first, *_reads(fetch, first, registers.word, own)]


def _pair(fetch: Fetch, registers: Registers) -> list[Row] | None:
    """Translate what is asked for as wider than a word of the machine; None if it is not, or if it
    is memory. Raises UsageError where it has no more than a word."""
    wide = fetch.type != DEFAULT_TYPE and TYPES[fetch.type] > registers.word
    if fetch.reads or not wide:
        return None
    word = registers.word
    match fetch.source:
        case Source.STACK_WORD:
            first, offset = registers.stack, word * fetch.value
        case Source.ARGUMENT if fetch.value > len(registers.arguments):
            behind = registers.behind - len(registers.arguments) - 1
            first, offset = registers.stack, word * (fetch.value + behind)
        case Source.RETVAL if fetch.type not in FLOATS and registers.paired:
            lower, upper = registers.results
            pair = (Step.REGISTER, registers.pair(upper, lower), 0)
            return [pair, (Step.STORE, TYPES[fetch.type], 0)]
        case Source.REGISTER if fetch.text in registers.vectors:
            return None
        case Source.REGISTER | Source.STACK:
            held = f"%{fetch.text}" if fetch.text else "$stack"
            raise UsageError(None, f"{held} has {word} bytes", f"take s{8 * word} or u{8 * word}")
        case _:
            return None
    size = TYPES[fetch.type]
    return [(Step.REGISTER, first, 0), (Step.READ, size, offset), (Step.STORE, size, 0)]


def _first(fetch: Fetch, ip: int, registers: Registers, own: Own) -> Row:
    """Translate the word a fetch starts with."""
    match fetch.source:
        case Source.REGISTER if fetch.text in registers.pc:
            return (Step.ADDRESS, 0, ip)
        case Source.REGISTER if fetch.text in registers.vectors:
            single = fetch.type == SINGLE
            return (Step.VECTOR, registers.vector(fetch.text, single=single), 0)
        case Source.PAIR:
            upper, lower = fetch.text.split(":")
            if not registers.paired or not {upper, lower} <= set(registers.numbers):
                reason = f"{value_text(fetch)} is no value in two registers"
                raise UsageError(None, reason, "fetch each one by itself")
            return (Step.REGISTER, registers.pair(upper, lower), 0)
        case Source.REGISTER:
            return (Step.REGISTER, registers.numbers[fetch.text], 0)
        case Source.STACK:
            return (Step.REGISTER, registers.stack, 0)
        case Source.STACK_WORD:
            return (Step.STACK, 0, fetch.value)
        case Source.RETVAL if fetch.type in FLOATS and not fetch.reads:
            single = fetch.type == SINGLE
            return (Step.VECTOR, registers.vector(registers.vectors[0], single=single), 0)
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
        case Source.TID | Source.CALLER | Source.LATENCY | Source.DEPTH:
            return (Step[fetch.source.name], 0, 0)
        case _:
            return (Step.NUMBER, 0, signed(fetch.value))


def _reads(fetch: Fetch, first: Row, word: int, own: Own) -> list[Row]:
    """Translate the reads after the first word; the last step stores."""
    steps: list[Row] = []
    width = TYPES[fetch.type]
    for number, offset in enumerate(fetch.reads):
        last = number + 1 == len(fetch.reads)
        if last and fetch.type == "string":
            return [*steps, (Step.STRING, 0, offset)]
        size = width if last else word
        mapped = number == 0 and first[0] == Step.ADDRESS and own.has(first[2] + offset, size)
        steps.append((Step.OWN if mapped else Step.READ, size, offset))
    return [*steps, (Step.STORE, width or 8, 0)]
