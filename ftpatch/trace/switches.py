# SPDX-License-Identifier: MIT
"""Triggers: calls of functions that switch what follows on or off, in all threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.below import frames
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.totals import parents

__all__ = ["switched"]

Read = Callable[[], Iterable[Rows]]
States = Callable[[], NDArray[np.int8]]
"""Of each function whether it switches on (1), off (0), or neither (UNKNOWN): int8[f]."""


def switched(triggers: Read, states: States, read: Read, *, begins_on: bool) -> Iterator[Rows]:
    """Select the calls that begin while it is on, until they end. ``triggers`` reads the calls that
    may switch: all of them, before the first one is selected."""
    times, state = _changes(triggers(), states, begins_on=begins_on)
    for rows in read():
        frame = frames(rows, parents(rows))
        own = (rows.kind <= Kind.ENTER) | (rows.pair >= 0)
        time = np.where(own, rows.time[frame], rows.time)
        yield rows.take(state[np.searchsorted(times, time, side="right")])


def _changes(
    batches: Iterable[Rows], states: States, *, begins_on: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """When it is switched, int64[n], and whether it is on before the first time and from each time
    on, bool[n + 1]."""
    times, found = [np.zeros(0, np.int64)], [np.zeros(0, np.int8)]
    for rows in batches:
        state = states()[rows.function]
        mine = ((rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT)) & (state != UNKNOWN)
        times.append(rows.time[mine])
        found.append(state[mine])
    time, state = np.concatenate(times), np.concatenate(found)
    order = np.argsort(time, kind="stable")
    return time[order], np.append(begins_on, state[order] == 1)
