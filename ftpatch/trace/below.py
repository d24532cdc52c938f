# SPDX-License-Identifier: MIT
"""Calls of chosen functions, and everything below them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.totals import parents

__all__ = ["depths", "frames", "inside"]


def frames(rows: Rows, around: NDArray[np.intp]) -> NDArray[np.intp]:
    """The row that enters the frame of each row, intp[n], or of rows that have none of their own
    the frame that they are in; UNKNOWN outside of any. ``around`` is what parents() returns."""
    here = np.arange(len(rows))
    enters = rows.kind <= Kind.ENTER
    own = np.where(enters, here, rows.pair)
    alone = ~enters & (rows.pair < 0)
    if not alone.any():
        return own
    before = np.maximum.accumulate(np.where(alone, UNKNOWN, here))
    before[(before >= 0) & (rows.thread[before] != rows.thread)] = UNKNOWN
    after = np.where(enters[before], before, around[rows.pair[before]])
    return np.where(alone, np.where(before >= 0, after, UNKNOWN), own)


def _nearest(rows: Rows, around: NDArray[np.intp], chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
    """For each row that enters a frame the innermost chosen one of that and those around it, or
    else the outermost frame, intp[n]. Each step goes twice as far as the one before."""
    here = np.arange(len(rows))
    near = np.where(~chosen & (around >= 0), around, here)
    while not np.array_equal(further := near[near], near):
        near = further
    return near


def inside(rows: Rows, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the rows that belong to a call of a chosen function, or to anything below one, bool[n].
    ``chosen`` bool[n]: those whose function is one."""
    around = parents(rows)
    near, frame = _nearest(rows, around, chosen), frames(rows, around)
    return np.asarray(chosen | ((frame >= 0) & chosen[near[frame]]))


def depths(rows: Rows, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Levels between each row and the innermost call of a chosen function around it, int64[n]: 0
    for that call itself. Without one, they count from the outermost call."""
    around = parents(rows)
    near, frame = _nearest(rows, around, chosen), frames(rows, around)
    own = (rows.kind <= Kind.ENTER) | (rows.pair >= 0)
    depth = rows.level[frame] - rows.level[near[frame]] + ~own
    return np.where(~own & (chosen | (frame < 0)), 0, depth).astype(np.int64)
