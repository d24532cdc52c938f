# SPDX-License-Identifier: MIT
"""Copies of stacks, as a BPF program makes them beside a process, in the form of the runtime's own
(enum trace_calls of stubs/runtime/trace.h).

         | BLOCK | BLOCK | ...     blocks of memory; what could not be read is zero
    low ^    ^ stack pointer

The runtime keeps the words that may be addresses, with their places from the stack pointer on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants

__all__ = ["events_with_stacks"]

REGISTERS, WORDS, PLACE = (constants[f"CALLS_{name}"] for name in ("REGISTERS", "WORDS", "PLACE"))
CUT = constants["CALLS_CUT"]
WORD = 8
LEAST, BITS = (constants[f"CALLS_{name}"] for name in ("LEAST", "BITS"))
"""Bounds of addresses."""
Words = NDArray[np.uint64]


def events_with_stacks(
    events: Words, records: NDArray[np.void], stacked: NDArray[np.bool_], pointer: int
) -> tuple[Words, NDArray[np.int64]]:
    """Put copies behind those of the events, uint64[n, k], that are ``stacked``, bool[n]: all words
    one after the other, and the number of each event's, int64[n]. ``records`` RECORD[n] have the
    copies; ``pointer``: which of their registers is the stack pointer."""
    own = np.flatnonzero(stacked)
    copies = records[own]
    place, held, kept, cut = _addresses(copies, pointer)
    count = kept.sum(axis=1)
    lengths = np.full(len(events), events.shape[1], np.int64)
    lengths[own] += 1 + REGISTERS + count
    begin = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), np.uint64)
    out[begin[:, None] + np.arange(events.shape[1])] = events
    at = begin[own] + events.shape[1]
    out[at] = count.astype(np.uint64) | np.where(cut, np.uint64(CUT), np.uint64(0))
    out[at[:, None] + 1 + np.arange(REGISTERS)] = copies["general"]
    row, column = np.nonzero(kept)
    rank = (np.cumsum(kept, axis=1) - 1)[row, column]
    words = place[row, column].astype(np.uint64) << np.uint64(PLACE) | held[row, column]
    out[at[row] + 1 + REGISTERS + rank] = words
    return out, lengths


def _addresses(
    copies: NDArray[np.void], pointer: int
) -> tuple[NDArray[np.int64], Words, NDArray[np.bool_], NDArray[np.bool_]]:
    """The places of all words, in words from the stack pointer on, int64[m, w]; the words; which of
    them are kept, bool[m, w], and whether there are more than have room, bool[m]."""
    held = copies["stack"]
    apart = (copies["low"] - copies["general"][:, pointer]).view(np.int64)
    place = apart[:, None] // WORD + np.arange(held.shape[1])
    may_be = (held >= LEAST) & (held >> np.uint64(BITS) == 0) & (place >= 0)
    may_be &= (apart % WORD == 0)[:, None]
    kept = may_be & (np.cumsum(may_be, axis=1) <= WORDS)
    return place, held, kept, may_be.sum(axis=1) > WORDS
