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


class _Parts:
    """The calls of each batch, and the ends of those that ended in a later one."""

    def __init__(self) -> None:
        self._size = 0
        self._columns: dict[str, list[NDArray[Any]]] = {name: [] for name in TYPES}
        self._late: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]] = []
        self._open = OpenFrames()

    def add(self, rows: Rows) -> None:
        """The calls of one more batch."""
        number = np.full(len(rows), UNKNOWN, np.int64)
        self._open.fill(rows, number)
        begun = np.flatnonzero(among(rows.kind, (Kind.ENTER, Kind.POINT)))
        number[begun] = self._size + np.arange(len(begun))
        duration = np.full(len(begun), UNKNOWN, np.int64)
        end = np.full(len(begun), Kind.POINT, np.uint8)
        ended = among(rows.kind, (Kind.LEAVE, Kind.UNWOUND, Kind.END)) & (rows.pair >= 0)
        last = np.flatnonzero(ended)
        call = number[rows.pair[last]]
        here = call >= self._size
        own = call[here] - self._size
        duration[own], end[own] = rows.duration[last[here]], rows.kind[last[here]]
        late = last[~here & (call >= 0)]
        self._late.append((number[rows.pair[late]], rows.duration[late], rows.kind[late]))
        columns: dict[str, NDArray[Any]] = {
            "thread": rows.thread[begun],
            "function": rows.function[begun],
            "begin": rows.time[begun],
            "duration": duration,
            "end": end,
            "level": np.clip(rows.level[begun], 0, MAX_LEVEL).astype(np.uint16),
        }
        for name, column in columns.items():
            self._columns[name].append(column)
        self._size += len(begun)
        self._open.keep(rows, number)

    def whole(self, threads: int, window: Window) -> TimeLine:
        """All of them, by thread."""
        columns = {name: self._joined(name) for name in TYPES}
        for call, lasted, kind in self._late:
            columns["duration"][call], columns["end"][call] = lasted, kind
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

    def _joined(self, name: str) -> NDArray[Any]:
        """One column of all batches, whose parts are let go of."""
        parts = self._columns.pop(name)
        return np.concatenate([np.empty(0, TYPES[name]), *parts])


def read_time_line(batches: Iterable[Rows], threads: int, window: Window) -> TimeLine:
    """Read the calls that began in the time window; there are ``threads`` threads."""
    parts = _Parts()
    for rows in batches:
        parts.add(rows)
    return parts.whole(threads, window)
