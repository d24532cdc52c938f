# SPDX-License-Identifier: MIT
"""Calls that took a minimum of time.

Whether a call that is open at the end of a batch takes that long, a later one tells. Batches wait
for that, without the calls that are known to be too short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.open_frames import OpenFrames
from ftpatch.trace.rows import UNKNOWN, Kind, Rows

__all__ = ["long_calls"]

OPEN, LONG, SHORT = range(3)
"""The states of a frame."""
LOWEST = -(1 << 63)


def long_calls(batches: Iterable[Rows], least: int) -> Iterator[Rows]:
    """Select calls of at least this many nanoseconds, and those that did not end. Levels are those
    from before."""
    waiting = _Waiting(least)
    for rows in batches:
        waiting.add(rows)
        yield from waiting.ready()
    waiting.end()
    yield from waiting.ready()


class _Waiting:
    """Batches that wait; frames that were open at the end of one have a number."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._open = OpenFrames()
        self._state = np.zeros(0, np.uint8)
        self._begun = np.zeros(0, np.int64)
        self._undecided = np.zeros(0, np.intp)
        self._held: deque[tuple[Rows, NDArray[np.int64]]] = deque()

    def add(self, rows: Rows) -> None:
        """One more batch."""
        number = self._open.column(rows)
        opened = np.flatnonzero((rows.kind == Kind.ENTER) & (rows.pair < 0))
        number[opened] = len(self._state) + np.arange(len(opened))
        self._state = np.append(self._state, np.full(len(opened), OPEN, np.uint8))
        self._begun = np.append(self._begun, rows.time[opened])
        self._undecided = np.append(self._undecided, number[opened])
        self._open.keep(rows, number)
        kept = self._decide(rows, number)
        after = max(rows.until - self._least, LOWEST)
        mine = self._undecided[self._state[self._undecided] == OPEN]
        self._state[mine[self._begun[mine] <= after]] = LONG
        self._undecided = mine[self._state[mine] == OPEN]
        self._held.append((rows.take(kept), number[kept]))

    def _decide(self, rows: Rows, number: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Note which frames that were open ended too soon; return the rows to keep, bool[n]."""
        enters = rows.kind <= Kind.ENTER
        ends = np.flatnonzero(~enters & (rows.pair >= 0))
        begins = rows.pair[ends]
        long = (rows.duration[ends] >= self._least) | (rows.kind[ends] == Kind.END)
        frame = number[begins]
        early = frame >= 0
        known = self._state[frame[early]]
        long[early] = np.where(known == OPEN, long[early], known == LONG)
        self._state[frame[early]] = np.where(long[early], LONG, SHORT)
        kept = enters.copy()
        kept[ends], kept[begins] = long, long
        return np.asarray(kept | ((rows.kind == Kind.RETURN) & (rows.duration >= self._least)))

    def ready(self) -> Iterator[Rows]:
        """Yield the batches of which all is known."""
        while self._held:
            rows, number = self._held[0]
            state = np.full(len(rows), LONG, np.uint8)
            named = number != UNKNOWN
            state[named] = self._state[number[named]]
            if (state == OPEN).any():
                return
            self._held.popleft()
            yield rows.take(state == LONG)

    def end(self) -> None:
        """What is still open took longer than the trace."""
        self._state[self._undecided] = LONG
        self._undecided = self._undecided[:0]
