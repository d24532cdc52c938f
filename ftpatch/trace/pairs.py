# SPDX-License-Identifier: MIT
"""Levels and pairs of rows, assuming that each exit belongs to the innermost open frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.rows import UNKNOWN, Kind, Rows

__all__ = ["levels", "pair", "segments"]

STEP = np.array([1, 1, -1, -1, 0, 0, -1, 0], np.int8)
"""Frames that a row of each kind opens."""
NARROW = 1 << 16
"""numpy radix-sorts 16-bit keys, several times faster than longer ones."""


def segments(thread: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return where each thread's rows begin, intp[t], if they are contiguous."""
    if len(thread) and thread[0] == thread[-1]:
        return np.zeros(1, np.intp)
    return np.flatnonzero(np.diff(thread, prepend=-1))


def levels(rows: Rows) -> NDArray[np.int32]:
    """Open frames below each row's own, int32[n]; for rows without a frame, all open ones."""
    step = STEP[rows.kind]
    after = np.cumsum(step, dtype=np.int32)
    first = segments(rows.thread)
    before = after[first] - step[first]
    if len(first) > 1:
        after -= np.repeat(before, np.diff(first, append=len(rows)))
    return np.asarray(after - (step > 0), np.int32)


def pair(rows: Rows) -> tuple[Rows, NDArray[np.int32]]:
    """Fill in level, pair and duration, and the function of UNWOUND and END; also return the
    threads, int32[w], with an exit that is not of the innermost open frame."""
    if not len(rows):
        return rows, rows.thread
    level = levels(rows)
    first = segments(rows.thread)
    lowest = min(int(level.min()), 0)  # exits without an entry lead below 0
    key: NDArray[np.integer] = level - lowest if lowest else level
    if len(first) > 1:
        segment = np.repeat(np.arange(len(first)), np.diff(first, append=len(rows)))
        key = key.astype(np.int64) * len(first) + segment
    step = STEP[rows.kind]
    key = key.astype(np.uint16) if int(key.max()) < NARROW else key
    order = np.argsort(key, kind="stable")
    moves = step[order]
    if not moves.all():
        order = order[moves != 0]
        moves = step[order]
    ordered, up = key[order], moves > 0
    met = np.flatnonzero(up[:-1] & ~up[1:] & (ordered[:-1] == ordered[1:]))
    enter, leave = order[met], order[met + 1]
    partner = np.full(len(rows), UNKNOWN, np.intp)
    partner[enter], partner[leave] = leave, enter
    func, duration = rows.func, rows.duration.copy()
    duration[leave] = np.maximum(rows.time[leave] - rows.time[enter], 0)
    unseen = (rows.kind[leave] == Kind.UNWOUND) | (rows.kind[leave] == Kind.END)
    if unseen.any():
        func = func.copy()
        func[leave[unseen]] = func[enter[unseen]]
    other = leave[func[leave] != func[enter]]
    alone = leave[:0]
    if len(met) < len(up) - np.count_nonzero(up):
        alone = np.flatnonzero((step < 0) & (partner == UNKNOWN))
    wrong = np.unique(rows.thread[np.concatenate([other, alone])]).astype(np.int32)
    return rows.but(level=level, pair=partner, func=func, duration=duration), wrong
