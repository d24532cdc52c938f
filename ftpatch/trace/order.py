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
    ``leaves``, a call and its return with nothing in between become one LEAF if they are in the
    same batch.

    The resulting rows' pairs are meaningless.
    """
    held: Rows | None = None
    for rows in batches:
        until = rows.until
        told = (rows.kind != Kind.OPEN) & (rows.kind != Kind.END)
        if leaves:
            rows, paired = _leaves(rows)
            told &= ~paired
        if not told.any():
            continue
        rows = rows.take(told)
        if held is not None and len(held):
            rows = join_rows([held, rows])
            rows = rows.take(np.argsort(rows.thread, kind="stable"))
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


def _leaves(rows: Rows) -> tuple[Rows, NDArray[np.bool_]]:
    """Mark leaves, and return the rows that are merged into the entry before."""
    enters = rows.kind[:-1] == Kind.ENTER
    enter = np.flatnonzero(enters & (rows.kind[1:] == Kind.LEAVE) & (rows.pair[:-1] >= 0))
    enter = enter[rows.pair[enter] == enter + 1]
    kind, duration = rows.kind.copy(), rows.duration.copy()
    flags, value = rows.flags.copy(), rows.value.copy()
    kind[enter] = Kind.LEAF
    duration[enter] = duration[enter + 1]
    flags[enter], value[enter] = flags[enter + 1], value[enter + 1]
    gone = np.zeros(len(rows), bool)
    gone[enter + 1] = True
    return rows.but(kind=kind, duration=duration, flags=flags, value=value), gone


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
