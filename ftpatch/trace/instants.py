# SPDX-License-Identifier: MIT
"""Hits and accesses among the rows of calls, as ftrace shows events of others in its function
graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.accesses import Access
from ftpatch.trace.hits import Group
from ftpatch.trace.pairs import segments
from ftpatch.trace.render.cells import lines
from ftpatch.trace.render.values import Part
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.source import EventSource

__all__ = ["Instants"]


class Instants:
    """The hits and accesses of a source, n by time: ``thread`` int32[n], ``time`` int64[n]."""

    def __init__(self, source: EventSource) -> None:
        self._hits, accesses = source.hits(), source.accesses()
        self._accesses = [] if accesses is None else [*accesses]
        hits = len(self._hits) if self._hits is not None else 0
        time = np.array([one.time for one in self._accesses], np.int64)
        thread = np.array([one.thread for one in self._accesses], np.int32)
        if self._hits is not None:
            time = np.concatenate([self._hits.time, time])
            thread = np.concatenate([self._hits.thread, thread])
        order = np.argsort(time, kind="stable")
        self.time, self.thread = time[order], thread[order]
        self._which = order  # a hit, or behind these an access
        self._count = hits
        self._levels: dict[int, int] = {}
        self._functions = source.recording.functions

    def texts(
        self,
        numbers: NDArray[np.integer],
        parts: Callable[[Group], Iterable[Part]],
        access: Callable[[Access], str],
    ) -> list[str]:
        """The texts of some of them: of hits as ``parts`` of those of one point."""
        which = self._which[numbers.astype(np.intp)]
        out = np.empty(len(which), object)
        if self._hits is not None:
            mine = np.flatnonzero(which < self._count)
            point = self._hits.point[which[mine]]
            for number in np.unique(point).tolist():
                place = mine[point == number]
                made = lines(len(place), parts(self._hits.group(number, which[place])))
                out[place] = b"\n".join(made).decode().split("\n")
        for place in np.flatnonzero(which >= self._count).tolist():
            out[place] = access(self._accesses[int(which[place]) - self._count])
        return list(out.tolist())

    def among(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        """Yield rows of calls, with a row of kind POINT for each instant where it belongs."""
        done, last = 0, None
        for rows in batches:
            last = rows
            until = int(np.searchsorted(self.time, rows.until))
            yield self._with(rows, np.arange(done, max(done, until)))
            done = max(done, until)
        left = np.arange(done, len(self.time))
        if len(left):
            yield self._with(_none(last), left)

    def _with(self, rows: Rows, numbers: NDArray[np.intp]) -> Rows:
        """Insert some of them into a batch. What is at the time of a return was before it."""
        thread, time = self.thread[numbers], self.time[numbers]
        place = np.zeros(len(numbers), np.intp)
        level = np.zeros(len(numbers), np.int32)
        first = segments(rows.thread)
        ends = [*first.tolist()[1:], len(rows)] if len(rows) else []
        spans = zip(first.tolist(), ends, strict=True)
        bounds = dict(zip(rows.thread[first].tolist(), spans, strict=True))
        opens = (rows.kind == Kind.ENTER) | (rows.kind == Kind.OPEN)
        after = rows.level + opens
        key = 4 * np.clip(rows.time, 0, 1 << 60) + np.where(opens | (rows.kind == Kind.POINT), 0, 2)
        for one in np.unique(thread).tolist():
            mine = thread == one
            start, stop = bounds.get(one, (len(rows), len(rows)))
            keys = np.maximum.accumulate(key[start:stop])
            at = start + np.searchsorted(keys, 4 * np.clip(time[mine], 0, 1 << 60) + 1)
            self._settle(rows, at, numbers[mine], time[mine], (start, stop))
            place[mine] = at
            before = self._levels.get(one, 0)
            levels = np.concatenate([[before], after[start:stop]])
            level[mine] = levels[at - start]
        for one, (start, stop) in bounds.items():
            real = np.flatnonzero(rows.kind[start:stop] != Kind.END)
            if len(real):
                self._levels[one] = int(after[start + int(real[-1])])
        return _inserted(rows, place, numbers, thread, time, level)

    def _settle(
        self,
        rows: Rows,
        at: NDArray[np.intp],
        numbers: NDArray[np.intp],
        time: NDArray[np.int64],
        span: tuple[int, int],
    ) -> None:
        """Put hits that share their time with several rows of their thread to the call that they
        are of: clocks may be slow. ``at`` intp[m] are the rows that they come before."""
        rising = np.maximum.accumulate(rows.time[slice(*span)])
        low = span[0] + np.searchsorted(rising, time)
        high = span[0] + np.searchsorted(rising, time, side="right")
        used, least = set[int](), span[0]
        for i in np.flatnonzero(high > low).tolist():
            hit = int(self._which[numbers[i]])
            if self._hits is None or hit >= self._count:
                at[i] = least = max(least, int(at[i]))
                continue
            point = self._hits.points[int(self._hits.point[hit])]
            kind = Kind.LEAVE if point.returns else Kind.ENTER
            first = max(
                int(low[i]) - (not point.returns), span[0]
            )  # its call may have begun before
            for row in range(first, int(high[i])):
                place = row if point.returns else row + 1
                mine = rows.kind[row] == kind and self._start(rows, row) == point.ip
                if mine and row not in used and place >= least:
                    used.add(row)
                    at[i] = place
                    break
            at[i] = least = max(least, int(at[i]))

    def _start(self, rows: Rows, row: int) -> int:
        return self._functions.address[int(rows.function[row])]


def _none(rows: Rows | None) -> Rows:
    """No rows."""
    if rows is not None:
        return rows.take(np.zeros(len(rows), bool))
    narrow, wide = np.empty(0, np.int32), np.empty(0, np.int64)
    return Rows(
        kind=np.empty(0, np.uint8),
        thread=narrow,
        time=wide,
        func=np.empty(0, np.uint32),
        function=narrow,
        level=narrow,
        pair=wide,
        duration=wide,
        late=wide,
        flags=np.empty(0, np.uint8),
        value=np.empty(0, np.uint64),
        args=narrow,
        arguments=np.empty((0, 6), np.uint64),
        until=int(np.iinfo(np.int64).max),
    )


def _inserted(
    rows: Rows,
    place: NDArray[np.intp],
    numbers: NDArray[np.intp],
    thread: NDArray[np.int32],
    time: NDArray[np.int64],
    level: NDArray[np.int32],
) -> Rows:
    """Rows with points before the rows ``place``, intp[m], grouped by thread again; pairs are
    lost."""
    if not len(numbers):
        return rows
    fixed: dict[str, NDArray[np.generic] | int] = {
        "kind": int(Kind.POINT),
        "thread": thread,
        "time": time,
        "func": 0,
        "function": 0,
        "level": level,
        "duration": UNKNOWN,
        "late": UNKNOWN,
        "flags": Rows.INSTANT,
        "value": numbers.astype(np.uint64),
        "args": UNKNOWN,
    }
    columns = {name: np.insert(getattr(rows, name), place, value) for name, value in fixed.items()}
    wide = np.full(len(columns["kind"]), UNKNOWN, np.int64)
    made = rows.but(**columns, pair=wide)
    return made.take(np.argsort(made.thread, kind="stable"))
