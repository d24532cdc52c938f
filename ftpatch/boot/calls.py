"""Stack pointers to calls: which stack an event was on, and which functions have returned.

A function begins with a stack pointer that is below its callers'. So those with one that is not
above the next event's on the same stack have returned by then (or were left by a tail call). When
is not known: a call ends here when that next event begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events
from ftpatch.trace.batches import Batch
from ftpatch.trace.decode import Event

__all__ = ["Calls"]

STEP = 1 << 18
"""Events of a batch."""


class Calls:
    """Batches of entries and of the exits that follow from them, as other traces have them.
    ``func`` uint32[n] of each of n events, ``sp`` uint64[n], ``time`` uint64[n] (ticks); stacks
    are ``stack`` bytes large and begin at multiples of that, and have the numbers 1, 2, ... as they
    come: with ``only`` just those are told."""

    torn = 0

    def __init__(
        self,
        events: Sequence[Events],
        func: NDArray[np.uint32],
        stack: int,
        only: Collection[int] = (),
    ) -> None:
        none = [np.empty(0, np.uint64)]
        self._func = func
        self._sp = np.concatenate([*(part.sp for part in events), *none])
        time = np.concatenate([*(part.time for part in events), *none]).astype(np.int64)
        self._time = time - (time[0] if len(time) else 0)
        # The word above the first one of a stack is the next stack's, if nothing else.
        key, first, thread = np.unique(
            (self._sp - np.uint64(8)) // np.uint64(stack), return_index=True, return_inverse=True
        )
        order = np.argsort(first)  # stacks by the time at which they are first seen
        number = np.empty(len(key), np.int32)
        number[order] = np.arange(len(key), dtype=np.int32)
        self._thread = number[thread]
        self.stacks = key[order] * np.uint64(stack)
        if only:
            kept = np.isin(self._thread + 1, list(only))
            self._func, self._time = func[kept], self._time[kept]
            self._sp, self._thread = self._sp[kept], self._thread[kept]
        self._open: dict[int, tuple[list[int], list[int]]] = {}

    def __len__(self) -> int:
        return -(-len(self._func) // STEP)

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self._func), STEP):
            part = slice(start, start + STEP)
            yield self._batch(part)

    def _batch(self, part: slice) -> Batch:
        order = np.argsort(self._thread[part], kind="stable")
        thread, time = self._thread[part][order], self._time[part][order]
        func, sp = self._func[part][order], self._sp[part][order]
        left: list[int] = []
        counts = np.empty(len(thread), np.int64)
        edges = np.flatnonzero(np.diff(thread)) + 1
        for own in np.split(np.arange(len(thread)), edges):
            held = self._open.setdefault(int(thread[own[0]]), ([], []))
            counts[own] = _returned(sp[own].tolist(), func[own].tolist(), held, left)
        at = np.cumsum(counts) + np.arange(len(thread))  # exits come before the entry that tells
        total = len(thread) + len(left)
        kind = np.full(total, Event.EXIT, np.uint8)
        kind[at] = Event.ENTRY
        funcs = np.empty(total, np.uint32)
        funcs[at] = func
        funcs[kind == Event.EXIT] = np.array(left, np.uint32)
        until = int(self._time[part][-1])
        threads, times = np.repeat(thread, counts + 1), np.repeat(time, counts + 1)
        return Batch(threads, times, kind, funcs, None, None, None, until)


def _returned(
    sp: list[int], func: list[int], held: tuple[list[int], list[int]], left: list[int]
) -> list[int]:
    """How many functions have returned before each event of one stack; they go to ``left``, and
    what is open stays in ``held``: stack pointers and functions."""
    pointers, functions = held
    counts = []
    for pointer, function in zip(sp, func, strict=True):
        number = 0
        while pointers and pointers[-1] <= pointer:
            pointers.pop()
            left.append(functions.pop())
            number += 1
        counts.append(number)
        pointers.append(pointer)
        functions.append(function)
    return counts
