# SPDX-License-Identifier: MIT
"""Levels and pairs of rows, assuming that each exit belongs to the innermost open frame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.rows import UNKNOWN, Kind, Rows

__all__ = ["levels", "pair", "segments"]

CLOSING = (Kind.LEAVE, Kind.UNWOUND, Kind.END)
"""Kinds of rows that close a frame."""
UNNAMED = (Kind.UNWOUND, Kind.END)
"""Those of them that do not name its function."""
NARROW = 1 << 16
"""numpy radix-sorts 16-bit keys, several times faster than longer ones."""


def segments(thread: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return where each thread's rows begin, intp[t], if they are contiguous."""
    if len(thread) and thread[0] == thread[-1]:
        return np.zeros(1, np.intp)
    return np.flatnonzero(np.diff(thread, prepend=-1))


def levels(rows: Rows) -> NDArray[np.int32]:
    """Open frames below each row's own, int32[n]; for rows without a frame, all open ones."""
    step = _steps(rows.kind)
    after = np.cumsum(step, dtype=np.int32)
    first = segments(rows.thread)
    before = after[first] - step[first]
    if len(first) > 1:
        after -= np.repeat(before, np.diff(first, append=len(rows)))
    return np.asarray(after - (step > 0), np.int32)


def _steps(kind: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Frames that each row opens, int8[n]; -1 if it closes one."""
    opens: NDArray[np.int8] = (kind <= Kind.ENTER).view(np.int8)
    return opens - among(kind, CLOSING).view(np.int8)


def pair(rows: Rows) -> tuple[Rows, NDArray[np.int32]]:
    """Fill in level, pair and duration, and the function of UNWOUND and END; also return the
    threads, int32[w], with an exit that is not of the innermost open frame."""
    if not len(rows):
        return rows, rows.thread
    level = levels(rows)
    step = _steps(rows.kind)
    enter, leave = _pairs(rows, level, step)
    partner = np.full(len(rows), UNKNOWN, np.intp)
    partner[enter], partner[leave] = leave, enter
    func, duration = rows.func, rows.duration.copy()
    duration[leave] = np.maximum(rows.time.take(leave) - rows.time.take(enter), 0)
    if among(rows.kind, UNNAMED).any():
        unseen = among(rows.kind[leave], UNNAMED)
        func = func.copy()
        func[leave[unseen]] = func[enter[unseen]]
    other = leave[func.take(leave) != func.take(enter)]
    alone = leave[:0]
    if len(leave) < np.count_nonzero(step < 0):
        alone = np.flatnonzero((step < 0) & (partner == UNKNOWN))
    wrong = np.unique(rows.thread[np.concatenate([other, alone])]).astype(np.int32)
    return rows.but(level=level, pair=partner, func=func, duration=duration), wrong


def _pairs(
    rows: Rows, level: NDArray[np.int32], step: NDArray[np.int8]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows where frames open, and those where the same frames close, intp[m].

    Of calls that call nothing the one follows the other; a stable sort by level brings the others'
    together, of which there are half as many or less.
    """
    up, down = step > 0, step < 0
    first = segments(rows.thread)
    leaf = up[:-1] & down[1:]
    leaf[first[1:] - 1] = False
    leaves = np.flatnonzero(leaf)
    up[leaves] = down[leaves + 1] = False
    rest = np.flatnonzero(up | down)
    if not len(rest):
        return leaves, leaves + 1
    key: NDArray[np.integer] = level[rest]
    key -= min(int(key.min()), 0)  # exits without an entry lead below 0
    if len(first) > 1:
        segment = np.searchsorted(first, rest, side="right")
        key = key.astype(np.int64) * (len(first) + 1) + segment
    key = key.astype(np.uint16) if int(key.max()) < NARROW else key
    order = np.argsort(key, kind="stable")
    ordered, opens = key[order], up[rest[order]]
    met = np.flatnonzero(opens[:-1] & ~opens[1:] & (ordered[:-1] == ordered[1:]))
    return (
        np.concatenate([leaves, rest[order[met]]]),
        np.concatenate([leaves + 1, rest[order[met + 1]]]),
    )
