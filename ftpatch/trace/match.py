# SPDX-License-Identifier: MIT
"""Matching exits to entries: a stack per thread, for many events at once.

The number of open frames is a running sum. Of one thread's rows that go from n frames to n + 1 or
back, every second one is an entry, and the next row its exit: a stable sort by that number makes
them adjacent. Where the functions then disagree, repair.py goes through the thread's events one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import looked_up
from ftpatch.trace.batches import Batch
from ftpatch.trace.decode import Event
from ftpatch.trace.pairs import pair, segments
from ftpatch.trace.repair import Suspended, repair
from ftpatch.trace.rows import UNKNOWN, Kind, Rows, join_rows

__all__ = ["Matcher"]

MAX_OPEN = 1 << 18
"""Maximum open frames kept per thread; the outermost beyond that are forgotten."""
MANY = 256
"""Threads per batch at the end of the trace."""
KIND = np.array(
    [
        Kind.POINT,
        Kind.ENTER,
        Kind.LEAVE,
        Kind.ENTER,
        Kind.ENTER,
        Kind.LEAVE,
        Kind.UNWOUND,
        Kind.POINT,
        Kind.UNWOUND,
    ],
    np.uint8,
)
"""By type of event; repair removes SYNC."""
VALUED = np.zeros(len(KIND), np.uint8)
VALUED[[Event.ENTRY_FROM, Event.EXIT_VALUE]] = Rows.VALUE


class Matcher:
    """Keeps each thread's open and unwound frames. Threads in ``points``, bool[t], do not record
    returns: their calls are points."""

    def __init__(self, points: NDArray[np.bool_]) -> None:
        self._points = points
        self._open: dict[int, tuple[NDArray[np.uint32], NDArray[np.int64]]] = {}
        self._left: dict[int, Suspended] = {}
        self._last = np.full(len(points), np.iinfo(np.int64).min, np.int64)

    def grow(self, points: NDArray[np.bool_]) -> None:
        """Take note of more threads: ``points`` bool[t] of all that there are now."""
        more = len(points) - len(self._points)
        self._points = points
        self._last = np.pad(self._last, (0, more), constant_values=np.iinfo(np.int64).min)

    def feed(self, batch: Batch) -> Rows:
        """Turn a batch into rows, with each thread's open frames before its own."""
        first = segments(batch.thread)
        threads = batch.thread[first]
        last = np.maximum.reduceat(batch.time, first) if len(first) else batch.time
        self._last[threads] = np.maximum(self._last[threads], last)
        rows, events = self._with_open(batch)
        plain, wrong = _expanded(rows, events)
        paired, mismatched = pair(plain)
        wrong = np.union1d(wrong, mismatched).astype(np.int32)
        if len(wrong):
            paired, _ = pair(self._repaired(rows, events, plain, wrong))
        self._note_left(paired, wrong)
        self._keep_open(paired)
        return paired

    def finish(self) -> Iterator[Rows]:
        """Yield the frames still open at the end, with an END at each thread's last event."""
        held, self._open = sorted(self._open.items()), {}
        parts: list[Rows] = []
        for number, (thread, (func, time)) in enumerate(held, 1):
            both = np.concatenate([func, func[::-1]])
            last = np.maximum(self._last[thread], time[::-1])
            kind = np.repeat(np.array([Kind.OPEN, Kind.END], np.uint8), len(func))
            who = np.full(len(both), thread, np.int32)
            parts.append(_plain(kind, who, np.concatenate([time, last]), both))
            if number % MANY == 0 or number == len(held):
                yield pair(join_rows(parts))[0]
                parts = []

    def _with_open(self, batch: Batch) -> tuple[Rows, NDArray[np.uint8]]:
        """Make rows of the events, after each thread's open frames; also return each row's event
        type."""
        kind = looked_up(KIND, batch.type)
        if self._points.any():
            kind[(kind == Kind.ENTER) & self._points[batch.thread]] = Kind.POINT
        threads = batch.thread[segments(batch.thread)].tolist()
        held = [(thread, *self._open[thread]) for thread in threads if thread in self._open]
        lengths = [len(func) for _, func, _ in held]
        count = sum(lengths)
        thread = np.repeat(np.array([thread for thread, _, _ in held], np.int32), lengths)
        rows = _plain(
            np.concatenate([np.full(count, Kind.OPEN, np.uint8), kind]),
            np.concatenate([thread, batch.thread]),
            np.concatenate([*(time for _, _, time in held), batch.time]),
            np.concatenate([*(func for _, func, _ in held), batch.func]),
        ).but(until=batch.until)
        events = np.concatenate([np.full(count, Event.ENTRY, np.uint8), batch.type])
        if batch.value is not None and batch.args is not None:
            own = slice(count, None)
            rows.flags[own], rows.value[own] = looked_up(VALUED, batch.type), batch.value
            args = rows.args.copy()
            args[own] = batch.args
            rows = rows.but(args=args, arguments=batch.arguments)
        if not held or len(threads) == 1:
            return rows, events
        order = np.argsort(rows.thread, kind="stable")
        return rows.take(order), events[order]

    def _repaired(
        self, rows: Rows, events: NDArray[np.uint8], plain: Rows, wrong: NDArray[np.int32]
    ) -> Rows:
        """Return all rows, with those of the given threads repaired one by one."""
        parts = [plain.take(~np.isin(plain.thread, wrong))]
        for thread in wrong.tolist():
            start, stop = np.searchsorted(rows.thread, [thread, thread + 1]).tolist()
            left = self._left.setdefault(thread, Suspended())
            parts.append(repair(rows, events, start, stop, left))
        joined = join_rows(parts).but(until=rows.until)
        return joined.take(np.argsort(joined.thread, kind="stable"))

    def _note_left(self, rows: Rows, repaired: NDArray[np.int32]) -> None:
        """Note unwound frames, which may yet return; those of repaired threads are noted
        already."""
        lefts = np.flatnonzero((rows.kind == Kind.UNWOUND) & (rows.pair >= 0))
        if len(repaired):
            lefts = lefts[~np.isin(rows.thread[lefts], repaired)]
        entered = rows.time[rows.pair[lefts]]
        columns = (rows.thread[lefts], rows.func[lefts], entered, rows.time[lefts])
        for thread, *frame in zip(*(column.tolist() for column in columns), strict=True):
            self._left.setdefault(thread, Suspended()).put(*frame)

    def _keep_open(self, rows: Rows) -> None:
        still = np.flatnonzero((rows.kind <= Kind.ENTER) & (rows.pair < 0))
        thread = rows.thread
        for number in thread[segments(thread)].tolist():
            self._open.pop(number, None)
        for part in np.split(still, segments(thread[still])[1:]) if len(still) else ():
            kept = part[-MAX_OPEN:]
            self._open[int(thread[kept[0]])] = (rows.func[kept], rows.time[kept])


def _expanded(rows: Rows, events: NDArray[np.uint8]) -> tuple[Rows, NDArray[np.int32]]:
    """Repeat each EVENT_UNWOUND as often as it says; also return the threads in which that many
    frames cannot be open, or in which chunks are missing."""
    lefts = rows.kind == Kind.UNWOUND
    if not lefts.any():
        return rows, rows.thread[:0]
    first = segments(rows.thread)
    counts = np.where(events == Event.UNWOUND, rows.func, np.where(lefts, 0, 1)).astype(np.int64)
    entered = np.add.reduceat(rows.kind <= Kind.ENTER, first, dtype=np.int64)
    claimed = np.add.reduceat(np.where(lefts, counts, 0), first)
    wrong = (claimed > entered) | np.logical_or.reduceat(events == Event.SYNC, first)
    counts[lefts & np.repeat(wrong, np.diff(first, append=len(rows)))] = 0
    return rows.take(np.repeat(np.arange(len(rows)), counts)), rows.thread[first[wrong]]


def _plain(
    kind: NDArray[np.uint8],
    thread: NDArray[np.int32],
    time: NDArray[np.int64],
    func: NDArray[np.uint32],
) -> Rows:
    n = len(kind)
    # Identical columns share one array: to change a column, make another.
    narrow, wide = np.full(n, UNKNOWN, np.int32), np.full(n, UNKNOWN, np.int64)
    return Rows(
        kind=kind,
        thread=thread,
        time=time,
        func=func,
        function=narrow,
        level=narrow,
        pair=wide,
        duration=wide,
        late=wide,
        flags=np.zeros(n, np.uint8),
        value=np.zeros(n, np.uint64),
        args=narrow,
        arguments=np.zeros((0, 6), np.uint64),
    )
