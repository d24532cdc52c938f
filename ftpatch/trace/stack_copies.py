# SPDX-License-Identifier: MIT
"""Stacks as the runtime copies them (enum trace_calls of stubs/runtime/trace.h).

| count, cut | registers | count words, each with its place |     to be unwound
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.registers import registers_of
from ftpatch.layout import constants
from ftpatch.trace.stacks import Stacks
from ftpatch.trace.unwind import PLACE_BITS, Copies, Walked, unwind

__all__ = ["COPY_ROOM", "copied_words", "unwound"]

REGISTERS, WORDS, PLACE = (constants[f"CALLS_{name}"] for name in ("REGISTERS", "WORDS", "PLACE"))
COUNT = constants["CALLS_CUT"] - 1
COPY_ROOM: Final = 1 + REGISTERS + WORDS
"""The most words that a copy takes."""
Block = NDArray[np.uint64]


def copied_words(first: Block) -> NDArray[np.uint16]:
    """The words that copies take, by the first one of each; 0 for one that cannot be."""
    held = first & np.uint64(COUNT)
    return np.where(held > WORDS, np.uint64(0), held + np.uint64(1 + REGISTERS)).astype(np.uint16)


def unwound(stacks: Stacks, header: int, ip: Block, block: Block, depth: int) -> Walked:
    """Find the calls that led to n events of one process. ``ip`` uint64[n] as in Copies; ``block``
    uint64[n, COPY_ROOM]: their copies; ``depth``: the most calls of each."""
    known = stacks.registers(header)
    registers = registers_of(stacks.arch(header))
    numbers = registers.numbers
    copied = registers.in_copies(REGISTERS)
    named = {numbers[name]: row for row, name in enumerate(known.names) if name in numbers}
    held_by = {at: row for at, row in named.items() if at in copied}
    count = np.minimum(block[:, 0] & np.uint64(COUNT), np.uint64(WORDS)).astype(np.int64)
    words = block[:, 1 + REGISTERS :]
    there = np.arange(words.shape[1]) < count[:, None]
    row = np.nonzero(there)[0]
    held = words[there]
    copies = Copies(
        ip=ip,
        registers=block[:, 1 : 1 + REGISTERS][:, [copied.index(number) for number in held_by]],
        numbers=list(held_by.values()),
        keys=row << PLACE_BITS | (held >> np.uint64(PLACE)).astype(np.int64),
        words=held & np.uint64((1 << PLACE) - 1),
    )
    return unwind(copies, stacks.code(header).unwound, known, depth)
