# SPDX-License-Identifier: MIT
"""Rows of all threads ordered by time, without ever holding all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.pairs import segments
from ftpatch.trace.rows import Kind, Rows, join_rows

__all__ = ["by_time"]

STEP = 1 << 16
"""Rows yielded at a time."""
MAX_HELD = 1 << 20
"""Maximum rows held back for others that may precede them. Only invalid times make it more than a
chunk per thread."""


def by_time(batches: Iterable[Rows], *, leaves: bool = False) -> Iterator[Rows]:
    """Order rows by time, keeping each thread's own order and dropping repeated open frames. With
    ``leaves``, a call and its return with nothing in between become one LEAF if the return is there
    by the time that the call is yielded.

    The resulting rows' pairs are meaningless.
    """
    held: Rows | None = None
    for rows in batches:
        until = rows.until
        rows = rows.take((rows.kind != Kind.OPEN) & (rows.kind != Kind.END))
        if held is not None and len(held):
            rows = join_rows([held, rows])
            rows = rows.take(np.argsort(rows.thread, kind="stable"))
        if leaves:
            rows = _with_leaves(rows)
        time = _rising(rows)
        ready = time < until
        if len(rows) - int(ready.sum()) > MAX_HELD:
            ready = np.ones(len(rows), bool)
        yield from _parts(rows, np.flatnonzero(ready), time)
        held = rows.take(~ready)
    if held is not None and len(held):
        yield from _parts(held, np.arange(len(held)), _rising(held))


def _parts(rows: Rows, index: NDArray[np.intp], time: NDArray[np.int64]) -> Iterator[Rows]:
    """Yield rows by time, some at a time, since they take much more space as text."""
    index = index[np.argsort(time[index], kind="stable")]
    for first in range(0, len(index), STEP):
        yield rows.take(index[first : first + STEP])


def _with_leaves(rows: Rows) -> Rows:
    """Merge calls with the returns that follow them."""
    enter = np.flatnonzero((rows.kind[:-1] == Kind.ENTER) & (rows.kind[1:] == Kind.LEAVE))
    leave = enter + 1
    same = (rows.thread[enter] == rows.thread[leave]) & (rows.level[enter] == rows.level[leave])
    enter, leave = enter[same], leave[same]
    kind, duration = rows.kind.copy(), rows.duration.copy()
    flags, value = rows.flags.copy(), rows.value.copy()
    kind[enter] = Kind.LEAF
    duration[enter] = duration[leave]
    flags[enter], value[enter] = flags[leave], value[leave]
    merged = rows.but(kind=kind, duration=duration, flags=flags, value=value)
    left = np.ones(len(rows), bool)
    left[leave] = False
    return merged.take(left)


def _rising(rows: Rows) -> NDArray[np.int64]:
    """Make times monotonic per thread, int64[n]: clocks of damaged traces may go back."""
    time = rows.time
    first = segments(rows.thread)
    falls = np.flatnonzero(np.diff(time, prepend=time[:1]) < 0)
    falls = falls[~np.isin(falls, first)]
    if not len(falls):
        return time
    time = time.copy()
    for start in np.unique(np.searchsorted(first, falls, side="right") - 1).tolist():
        stop = int(first[start + 1]) if start + 1 < len(first) else len(time)
        part = slice(int(first[start]), stop)
        time[part] = np.maximum.accumulate(time[part])
    return time
