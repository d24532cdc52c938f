# SPDX-License-Identifier: MIT
"""From events to calls: which stack an event was on, and which functions have returned.

The time of a return is unknown: a function ends here when the first event after it begins on its
stack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events
from ftpatch.boot.nesting import levels_of, returns_of
from ftpatch.trace.batches import Batch
from ftpatch.trace.decode import Event

__all__ = ["Calls", "stacks_of"]

STEP = 1 << 18
"""Events per batch."""


def stacks_of(sp: NDArray[np.uint64], stack: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    """Stacks of ``stack`` bytes by the time they first appear, uint64[s], and which of them each
    stack pointer is in, int32[n]."""
    # The word above a stack's first one belongs to the next stack, if any.
    key, seen, thread = np.unique(
        (sp - np.uint64(8)) // np.uint64(stack), return_index=True, return_inverse=True
    )
    order = np.argsort(seen)
    number = np.empty(len(key), np.int32)
    number[order] = np.arange(len(key), dtype=np.int32)
    return key[order] * np.uint64(stack), number[thread]


class Calls:
    """Batches of entries and of the exits that follow from them, as in other traces. ``func``
    uint32[n] of each of n events, ``caller`` uint32[n]: the function it returns to, or NOBODY.
    Stacks are ``stack`` bytes large, aligned to that, and numbered 1, 2, ... as they appear;
    ``only`` selects some of them."""

    torn = 0

    def __init__(
        self,
        events: Sequence[Events],
        func: NDArray[np.uint32],
        caller: NDArray[np.uint32],
        stack: int,
        only: Collection[int] = (),
    ) -> None:
        none = [np.empty(0, np.uint64)]
        sp = np.concatenate([*(part.sp for part in events), *none])
        time = np.concatenate([*(part.time for part in events), *none]).astype(np.int64)
        self._time = time - (time[0] if len(time) else 0)
        self.stacks, self._thread = stacks_of(sp, stack)
        self._func = func
        if only:
            kept = np.isin(self._thread + 1, list(only))
            self._func, self._time = func[kept], self._time[kept]
            self._thread, sp, caller = self._thread[kept], sp[kept], caller[kept]
        order = np.argsort(self._thread, kind="stable")
        first = np.diff(self._thread[order], prepend=-1) > 0
        level = levels_of(first, sp[order], self._func[order], caller[order])
        counts, self._left = returns_of(level, first, self._func[order])
        self._counts, self._ends = np.empty_like(counts), np.empty_like(counts)
        self._counts[order], self._ends[order] = counts, np.cumsum(counts)

    def __len__(self) -> int:
        return -(-len(self._func) // STEP)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self._func), STEP):
            part = slice(start, start + STEP)
            yield self._batch(part)

    def _batch(self, part: slice) -> Batch:
        order = np.argsort(self._thread[part], kind="stable")
        thread, time = self._thread[part][order], self._time[part][order]
        counts, ends = self._counts[part][order], self._ends[part][order]
        before = np.cumsum(counts)
        at = before + np.arange(len(thread))  # exits precede the entry that reveals them
        total = int(before[-1])
        kind = np.full(len(thread) + total, Event.EXIT, np.uint8)
        kind[at] = Event.ENTRY
        funcs = np.empty(len(kind), np.uint32)
        funcs[at] = self._func[part][order]
        left = np.repeat(ends - before, counts) + np.arange(total)
        funcs[kind == Event.EXIT] = self._left[left]
        until = int(self._time[part][-1])
        threads, times = np.repeat(thread, counts + 1), np.repeat(time, counts + 1)
        return Batch(
            thread=threads,
            time=times,
            type=kind,
            func=funcs,
            value=None,
            args=None,
            arguments=None,
            until=until,
        )
