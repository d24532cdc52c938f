# SPDX-License-Identifier: MIT
"""The first calls of a trace, those of all threads together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.open_frames import OpenFrames
from ftpatch.trace.pairs import segments
from ftpatch.trace.rows import Kind, Rows

__all__ = ["first_calls"]

Span = tuple[int, int]
CALLS = np.isin(list(Kind), [Kind.ENTER, Kind.POINT])
"""By kind of row: whether a call begins there."""


@dataclass(frozen=True)
class _Share:
    """How many calls of each thread are among the first, int64[t], and the time of the last one."""

    calls: NDArray[np.int64]
    last: int


def first_calls(
    read: Callable[[], Iterable[Rows]], most: int, span: Span, threads: int
) -> Iterator[Rows]:
    """Select the first calls that begin in a time span, until they end. ``read`` starts reading:
    once to find out which those are."""
    share = _shares(read(), most, span, threads)
    opened, seen = OpenFrames(), np.zeros(threads, np.int64)
    for rows in read():
        first = opened.column(rows) > 0
        call = np.flatnonzero(CALLS[rows.kind])
        counted = call[_within(rows.time[call], span)]
        thread = rows.thread[counted]
        first[call] = True
        first[counted] = _ranks(thread) + seen[thread] < share.calls[thread]
        seen += np.bincount(thread, minlength=threads)
        opened.keep(rows, first.astype(np.int64))
        ends = np.flatnonzero((rows.kind > Kind.ENTER) & (rows.pair >= 0))
        first[ends] = first[rows.pair[ends]]
        back = np.flatnonzero((rows.kind == Kind.RETURN) & (rows.pair < 0))
        first[back] = rows.time[back] <= share.last
        yield rows.take(first)


def _shares(batches: Iterable[Rows], most: int, span: Span, threads: int) -> _Share:
    """Find the first calls; stop where none of them can follow."""
    time, thread = np.zeros(0, np.int64), np.zeros(0, np.int32)
    for rows in batches:
        call = np.flatnonzero(CALLS[rows.kind])
        call = call[_within(rows.time[call], span)]
        time = np.concatenate([time, rows.time[call]])
        thread = np.concatenate([thread, rows.thread[call]])
        # Stable, so that those of one thread stay in their order.
        order = np.argsort(time, kind="stable")[:most]
        time, thread = time[order], thread[order]
        if len(time) == most and time[-1] < rows.until:
            break
    last = int(time[-1]) if len(time) == most else int(np.iinfo(np.int64).max)
    return _Share(np.bincount(thread, minlength=threads), last)


def _within(time: NDArray[np.int64], span: Span) -> NDArray[np.bool_]:
    return np.asarray((time >= span[0]) & (time <= span[1]))


def _ranks(thread: NDArray[np.int32]) -> NDArray[np.intp]:
    """The number of each row among those of its thread, intp[n]."""
    first = segments(thread)
    return np.arange(len(thread)) - np.repeat(first, np.diff(first, append=len(thread)))
