# SPDX-License-Identifier: MIT
"""All calls of a recording in the order in which they began, thread by thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.open_frames import OpenFrames
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.window import Window

__all__ = ["TimeLine", "read_time_line"]

TYPES: dict[str, type[np.integer[Any]]] = {
    "thread": np.int32,
    "function": np.int32,
    "begin": np.int64,
    "duration": np.int64,
    "end": np.uint8,
    "level": np.uint16,
}
"""Columns."""
ROOM = 1 << 16
"""Calls that there is room for at first."""
MAX_LEVEL = (1 << 16) - 1
"""Deeper levels count as this one."""


@dataclass(frozen=True, kw_only=True)
class TimeLine:
    """n calls, those of a thread together. ``first`` intp[t + 1]: where each thread's begin.
    ``function`` int32[n]; ``begin`` int64[n]; ``duration`` int64[n]: nanoseconds until the call
    ended, UNKNOWN if its end was not recorded; ``end`` uint8[n], the Kind of row that it ended
    with: LEAVE, UNWOUND or END, POINT if there is none; ``level`` uint16[n]."""

    first: NDArray[np.intp]
    function: NDArray[np.int32]
    begin: NDArray[np.int64]
    duration: NDArray[np.int64]
    end: NDArray[np.uint8]
    level: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.function)

    def of(self, thread: int) -> slice:
        """The calls of a thread."""
        return slice(int(self.first[thread]), int(self.first[thread + 1]))

    def thread_of(self, call: int) -> int:
        """The thread of a call."""
        return int(np.searchsorted(self.first, call, side="right")) - 1

    def at(self, thread: int, moment: int) -> int:
        """The thread's last call that began by a moment (nanoseconds), or its first one."""
        part = self.of(thread)
        found = int(np.searchsorted(self.begin[part], moment, side="right")) - 1
        return int(part.start) + max(found, 0)

    def longest(self, function: int) -> int:
        """The call of a function that took the most time; UNKNOWN if there is none."""
        calls = np.flatnonzero(self.function == function)
        if not len(calls):
            return UNKNOWN
        return int(calls[int(np.argmax(self.duration[calls]))])


class _Calls:
    """The calls so far, in columns with room for more: memory that is not written to costs none."""

    def __init__(self) -> None:
        self._size = 0
        self._columns: dict[str, NDArray[Any]] = {
            name: np.empty(ROOM, dtype) for name, dtype in TYPES.items()
        }
        self._open = OpenFrames()

    def add(self, rows: Rows) -> None:
        """The calls of one more batch, and the ends of earlier ones."""
        number = self._open.column(rows)
        begun = np.flatnonzero(among(rows.kind, (Kind.ENTER, Kind.POINT)))
        number[begun] = self._size + np.arange(len(begun))
        new = self._extend(len(begun))
        columns = self._columns
        columns["thread"][new] = rows.thread[begun]
        columns["function"][new] = rows.function[begun]
        columns["begin"][new] = rows.time[begun]
        columns["duration"][new] = UNKNOWN
        columns["end"][new] = Kind.POINT
        columns["level"][new] = np.clip(rows.level[begun], 0, MAX_LEVEL)
        ended = among(rows.kind, (Kind.LEAVE, Kind.UNWOUND, Kind.END)) & (rows.pair >= 0)
        last = np.flatnonzero(ended)
        call = number[rows.pair[last]]
        last, call = last[call >= 0], call[call >= 0]
        columns["duration"][call] = rows.duration[last]
        columns["end"][call] = rows.kind[last]
        self._open.keep(rows, number)

    def whole(self, threads: int, window: Window) -> TimeLine:
        """All of them, by thread."""
        columns = {name: column[: self._size] for name, column in self._columns.items()}
        if not window.is_whole:
            begin = columns["begin"]
            kept = (begin >= window.span[0]) & (begin <= window.span[1])
            columns = {name: column[kept] for name, column in columns.items()}
        thread = columns.pop("thread")
        if threads > 1:
            order = np.argsort(thread, kind="stable")
            thread = thread[order]
            columns = {name: column[order] for name, column in columns.items()}
        return TimeLine(first=np.searchsorted(thread, np.arange(threads + 1)), **columns)

    def _extend(self, count: int) -> slice:
        """Make room for more calls, and return where they are."""
        first, self._size = self._size, self._size + count
        for name, column in self._columns.items():
            if self._size > len(column):
                self._columns[name] = np.empty(2 * self._size, column.dtype)
                self._columns[name][:first] = column[:first]
        return slice(first, self._size)


def read_time_line(batches: Iterable[Rows], threads: int, window: Window) -> TimeLine:
    """Read the calls that began in the time window; there are ``threads`` threads."""
    calls = _Calls()
    for rows in batches:
        calls.add(rows)
    return calls.whole(threads, window)
