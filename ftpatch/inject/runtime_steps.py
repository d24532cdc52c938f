# SPDX-License-Identifier: MIT
"""The runtime's steps: struct fetch of stubs/runtime/probes.h."""

from __future__ import annotations

from enum import IntEnum

from ftpatch.core.filters import Operand
from ftpatch.core.number_types import FLOATS, SIGNED, TYPES
from ftpatch.layout import constants

__all__ = ["Row", "Step", "form", "signed", "value_steps"]

TEST_SIGNED = constants["TEST_SIGNED"]
FLOAT = TEST_SIGNED | constants["TEST_FLOAT"]


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
    CALLS = constants["FETCH_CALLS"]
    WITHIN = constants["FETCH_WITHIN"]
    VECTOR = constants["FETCH_VECTOR"]
    DEPTH = constants["FETCH_DEPTH"]
    FRAMES = constants["FETCH_FRAMES"]


Row = tuple[Step, int, int]
"""A step, its register or size in bytes, and its number."""


def value_steps(rows: list[Row]) -> list[Row]:
    """Those of a fetch's steps that give its value, or the address of its string."""
    *steps, (step, _, offset) = rows
    return [*steps, (Step.PLUS, 0, offset)] if step == Step.STRING else steps


def form(value: Operand) -> int:
    """The bytes of a value that count, and whether they have a sign or are a float (enum
    probe_test)."""
    if value.type in FLOATS:
        return TYPES[value.type] | FLOAT
    return TYPES[value.type] | TEST_SIGNED * (value.type in SIGNED)


def signed(number: int) -> int:
    """The number of 64 bits, signed as in the runtime."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
