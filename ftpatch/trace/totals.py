# SPDX-License-Identifier: MIT
"""Hits and times of functions: what function_profile counts, computed from any trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.window import Window

__all__ = ["Spent", "Summing", "Totals", "parents", "spent", "total"]


COUNTED = (Kind.ENTER, Kind.POINT)
ENDING = (Kind.LEAVE, Kind.UNWOUND, Kind.END)
STILL = (Kind.POINT, Kind.RETURN)
"""Kinds of rows where a counted call begins, where time ends, and that neither enter nor leave."""


@dataclass(frozen=True)
class Totals:
    """f functions, by decreasing time. ``function`` intp[f], ``hits`` int64[f]; ``time``, ``own``
    (excluding traced callees) and ``average`` (of a call) int64[f]: nanoseconds.

    Where a function calls itself, directly or not, its ``time`` is that of the outermost call, of
    which the inner ones are a part. All of them are hits, and count in the average.
    """

    function: NDArray[np.intp]
    hits: NDArray[np.int64]
    time: NDArray[np.int64]
    own: NDArray[np.int64]
    average: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        hits: NDArray[np.float64],
        time: NDArray[np.float64],
        own: NDArray[np.float64],
        every: NDArray[np.float64] | None = None,
    ) -> Totals:
        """Build from sums for every function, float64[f], dropping those without hits and time.
        ``every``: the time of all calls, inside others of their function too."""
        rows = np.flatnonzero((hits > 0) | (time > 0))
        rows = rows[np.lexsort((rows, -hits[rows], -time[rows]))]
        bound = float(1 << 62)
        columns = (hits, time, own, time if every is None else every)
        calls, whole, alone, all_of_it = (
            np.clip(column[rows], -bound, bound).astype(np.int64) for column in columns
        )
        return cls(rows, calls, whole, alone, all_of_it // np.maximum(calls, 1))

    def __len__(self) -> int:
        return len(self.function)

    @property
    def has_nested(self) -> bool:
        """True if the calls of a function took longer together than the outermost ones."""
        return bool((self.average * self.hits > self.time).any())

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield each one's function, hits, time and own time."""
        columns = (self.function, self.hits, self.time, self.own)
        return zip(*(column.tolist() for column in columns), strict=True)


@dataclass(frozen=True)
class Spent:
    """Calls and times of a batch. ``entered``: rows of calls that began here. ``ended``: rows where
    counted time ends, with ``time`` int64[m] (nanoseconds of the whole call), and ``begun``, the
    rows where those calls begin, UNKNOWN for a frame that returned after it was unwound."""

    entered: NDArray[np.intp]
    ended: NDArray[np.intp]
    begun: NDArray[np.intp]
    time: NDArray[np.int64]


def spent(rows: Rows, window: Window) -> Spent:
    """Restrict calls to the time window, counting only the part inside it.

    A frame that was unwound counts until then, and for the rest once it does return; one that is
    still open counts to its thread's last event.
    """
    entered = np.flatnonzero(among(rows.kind, COUNTED))
    ended = np.flatnonzero(among(rows.kind, ENDING) & (rows.pair >= 0))
    begun = rows.pair.take(ended)
    time, lasted = rows.time, rows.duration.take(ended)
    if not window.is_whole:
        time = np.clip(time, *window.span)
        entered = entered[time[entered] == rows.time[entered]]
        lasted = np.maximum(time[ended] - time[begun], 0)
    back = np.flatnonzero((rows.kind == Kind.RETURN) & (rows.late >= 0))
    if not len(back):
        return Spent(entered, ended, begun, lasted)
    late = time[back] - np.clip(rows.time[back] - rows.late[back], *window.span)
    return Spent(
        entered,
        np.concatenate([ended, back]),
        np.concatenate([begun, np.full(len(back), UNKNOWN)]),
        np.concatenate([lasted, np.maximum(late, 0)]),
    )


def parents(rows: Rows) -> NDArray[np.intp]:
    """The row where each frame's parent was entered, intp[n], for rows that enter a frame; UNKNOWN
    for outermost frames and for other rows.

    A frame's first call directly follows the row that entered the frame; its other calls are the
    next ones at their level, up to the next first call there.
    """
    out = np.full(len(rows), UNKNOWN, np.intp)
    enters = rows.kind <= Kind.ENTER
    at = np.flatnonzero(enters & (rows.level > 0))
    if not len(at):
        return out
    level = rows.level.take(at)
    order = np.argsort(level.astype(np.uint16) if level.max() < 1 << 16 else level, kind="stable")
    at = at.take(order)
    above = at - 1
    still = among(rows.kind, STILL)
    if still.any():  # the row that precedes is the last one that moves
        above = np.maximum.accumulate(np.where(still, 0, np.arange(len(rows)))).take(above)
    first = np.flatnonzero(enters.take(above))
    begun = np.zeros(len(at), np.intp)
    begun[first] = first
    out[at] = above.take(np.maximum.accumulate(begun, out=begun))
    return out


class Summing:
    """Sums over functions, of batches as they come; ``functions`` numbers them, and grows
    meanwhile."""

    def __init__(self, functions: Sized, window: Window) -> None:
        self._functions, self._window = functions, window
        self._hits, self._time, self._own, self._every = (np.zeros(0) for _ in range(4))

    def add(self, rows: Rows) -> None:
        """Add a batch."""
        size = max(len(self._functions), len(self._hits))
        hits, time, own, every = (
            np.pad(c, (0, size - len(c))) for c in (self._hits, self._time, self._own, self._every)
        )
        part = spent(rows, self._window)
        hits += np.bincount(rows.function[part.entered], minlength=size)
        sums = np.bincount(rows.function[part.ended], part.time, minlength=size)
        every += sums
        own += sums - _elsewhere(rows, part, size)
        inner = (part.begun >= 0) & _inner(rows)[part.begun]
        if inner.any():
            function, within = rows.function[part.ended[inner]], part.time[inner]
            sums = sums - np.bincount(function, within, minlength=size)
        time += sums
        self._hits, self._time, self._own, self._every = hits, time, own, every

    def totals(self) -> Totals:
        """Sums of all that has been added."""
        return Totals.of(self._hits, self._time, self._own, self._every)


def total(batches: Iterable[Rows], functions: Sized, window: Window) -> Totals:
    """Sum over all functions; ``functions`` numbers them, and grows meanwhile."""
    sums = Summing(functions, window)
    for rows in batches:
        sums.add(rows)
    return sums.totals()


def _inner(rows: Rows) -> NDArray[np.bool_]:
    """Mark the rows that enter a frame inside another call of its function, bool[n].

    Frames of one function in one thread, in their order: one is inside another if any before it
    ends after it begins.
    """
    out = np.zeros(len(rows), bool)
    at = np.flatnonzero(rows.kind <= Kind.ENTER)
    if not len(at):
        return out
    function = rows.function.take(at)
    # Rows stand by thread. numpy sorts 16 bits by their digits, in a tenth of the time.
    narrow = function.astype(np.uint16) if int(function.max()) < 1 << 16 else function
    order = np.argsort(narrow, kind="stable")
    at, narrow = at.take(order), narrow.take(order)
    end = rows.pair.take(at)
    end[end < 0] = len(rows)
    other = narrow[1:] != narrow[:-1]
    if rows.thread[0] != rows.thread[-1]:
        thread = rows.thread.take(at)
        other |= thread[1:] != thread[:-1]
    begin = at
    if other.any():  # ends of one group come before what begins in the next
        base = np.concatenate([[0], np.cumsum(other)]) * (len(rows) + 1)
        end += base
        begin = at + base
    np.maximum.accumulate(end, out=end)
    out[at[1:]] = end[:-1] > begin[1:]
    return out


def _elsewhere(rows: Rows, part: Spent, size: int) -> NDArray[np.float64]:
    """Time of each function that is not its own, float64[size]: spent in its callees, or while a
    frame was unwound."""
    back = part.begun == UNKNOWN
    around = parents(rows)[part.begun]
    around[back] = UNKNOWN
    inner = np.flatnonzero(around >= 0)
    called: NDArray[np.float64] = np.zeros(size)
    called += np.bincount(rows.function[around[inner]], part.time[inner], minlength=size)
    if back.any():
        called += np.bincount(rows.function[part.ended[back]], part.time[back], minlength=size)
    return called
