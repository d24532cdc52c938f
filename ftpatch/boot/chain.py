# SPDX-License-Identifier: MIT
"""The callers of a stream's latest events, as the trace itself knows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events
from ftpatch.boot.nesting import NOBODY, levels_of
from ftpatch.boot.returns import callers_of
from ftpatch.boot.stream import Decoder, Source
from ftpatch.image import Image

__all__ = ["latest_chains", "latest_events", "stack_numbers"]

EVENTS = 1 << 20
"""Events to read: who was called before them is not known. The calls that boot a kernel are as old
as that, and a slow machine has more of the clock's interrupts behind them."""
STACKS = 16
"""Stacks to look at: an exception may have one of its own, and other tasks run behind a hang."""


def latest_events(path: Path, source: Source, before: int = 0) -> Events | None:
    """Read the latest events of a stream, without the last ``before`` ones; None if there are
    none."""
    decoder = Decoder(source)
    with path.open("rb") as file:
        size = path.stat().st_size
        size -= size % source.size * source.mark.in_memory + before * source.size
        start = max(0, size - EVENTS * source.size)
        file.seek(start)
        parts = list(decoder.feed(np.frombuffer(file.read(max(0, size - start)), np.uint8)))
    found = source.calls(parts[0]) if parts else None
    return found if found is not None and len(found.place) else None


def stack_numbers(sp: NDArray[np.uint64], source: Source) -> NDArray[np.uint64]:
    """Number the stacks that stack pointers are in, uint64[n]. An empty one's is just above it."""
    return (sp - np.uint64(8)) // np.uint64(source.tracer.stack)


def latest_chains(events: Events, source: Source, kernel: Image) -> list[NDArray[np.int64]]:
    """For the latest event, and those of the other stacks that ran before it: its row and those of
    its callers, the innermost first."""
    row = np.searchsorted(source.places, events.place)
    code = np.arange(1, len(source.ip) + 1, dtype=np.uint32)
    caller = np.full(len(row), NOBODY, np.uint32)
    if events.back is not None:
        caller = callers_of(events.back, source, kernel.kallsyms, code)
    stack = stack_numbers(events.sp, source)
    chains = list[NDArray[np.int64]]()
    left = np.arange(len(row))
    while len(left) and len(chains) < STACKS:
        own = left[stack[left] == stack[left[-1]]]
        first = np.zeros(len(own), bool)
        first[0] = True
        level = levels_of(first, events.sp[own], code[row[own]], caller[own])
        # Going back, an event that is less deep than all behind it has called them.
        lowest = np.minimum.accumulate(level[::-1])
        calls = np.concatenate([[True], np.diff(lowest) < 0])
        chains.append(own[::-1][calls])
        left = left[stack[left] != stack[left[-1]]]
    return chains
