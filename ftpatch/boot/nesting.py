# SPDX-License-Identifier: MIT
"""Nesting of calls, from stack pointers and from where functions return.

Events are those of all stacks, stack by stack. A function begins with a stack pointer that is below
its callers', so those with one that is not above a later event's have ended by then. Of the others,
the innermost whose code the later function returns to has called it, and what began in between has
ended, too: a callee, or a function that was left by a tail call. Where none of them is returned to
(its caller has no site, is assembly, or was on another stack), it is the innermost one.

numpy has no stack, so each event looks outwards from the event before it, all of them at once,
along the callers of those that it has outlived. These may not be final, but do not lead too far:
what they jump over has been outlived by one that was outlived itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOBODY", "levels_of", "returns_of"]

NOBODY = 0
"""Stands for an unknown function."""
Index = NDArray[np.int64]


def levels_of(
    first: NDArray[np.bool_],
    sp: NDArray[np.uint64],
    func: NDArray[np.uint32],
    caller: NDArray[np.uint32],
) -> Index:
    """Count the functions around each event's, int64[n]. ``first`` bool[n]: it is its stack's
    first; ``func`` uint32[n]; ``caller`` uint32[n]: which of these it returns to, or NOBODY."""
    around = _outward(first, sp, np.full(len(sp), -1, np.int64))
    called = _caller_in(around, func, caller)
    if (called >= 0).any():
        around = _outward(first, sp, called)
    level = _depths(around)
    # If an event is missing, a function may seem to make a call after it has ended: then it is
    # mistaken for another one. An event is at most one level below the one before it.
    number = np.arange(len(level))
    return np.asarray(np.minimum.accumulate(level - number) + number)


def returns_of(
    level: Index, first: NDArray[np.bool_], func: NDArray[np.uint32]
) -> tuple[Index, NDArray[np.uint32]]:
    """Count the functions that ended between each event and the one before on its stack, int64[n];
    also return these, uint32[m], the innermost first."""
    n = len(level)
    before = np.concatenate([[0], level[:-1]])[:n]
    counts = np.where(first, 0, before + 1 - level)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if n else 0
    entry = np.arange(n) + ends  # ends precede the event that reveals them
    height = np.repeat(before + ends - counts, counts) - np.arange(total)
    rows = np.empty(n + total, np.int64)
    enters = np.zeros(n + total, bool)
    enters[entry] = True
    rows[enters], rows[~enters] = level, height
    # Of one level's rows on one stack, every second is an event, and the next one its end.
    kind = np.uint16 if n and int(rows.max()) <= np.iinfo(np.uint16).max else np.uint32
    order = np.argsort(rows.astype(kind), kind="stable")
    functions = np.empty(n + total, np.uint32)
    functions[enters] = func
    behind = np.flatnonzero(~enters[order])
    functions[order[behind]] = functions[order[behind - 1]]
    return counts, functions[~enters]


def _outward(first: NDArray[np.bool_], sp: NDArray[np.uint64], known: Index) -> Index:
    """The innermost function around each event, int64[n]: ``known``, or where that is -1, the first
    one with a higher stack pointer among the preceding event and those around it. -1: none."""
    around = np.arange(-1, len(sp) - 1)
    around[first] = -1
    around = np.where(known >= 0, known, around)
    left = np.flatnonzero((known < 0) & (around >= 0))
    while len(left):
        left = left[sp[around[left]] <= sp[left]]
        around[left] = around[around[left]]
        left = left[around[left] >= 0]
    return around


def _caller_in(around: Index, func: NDArray[np.uint32], caller: NDArray[np.uint32]) -> Index:
    """The innermost event around each one that is its caller's, int64[n], -1 if none is."""
    found = np.where(caller == NOBODY, -1, around)
    left = np.flatnonzero(found >= 0)
    while len(left):
        left = left[func[found[left]] != caller[left]]
        found[left] = around[found[left]]
        left = left[found[left] >= 0]
    return found


def _depths(around: Index) -> Index:
    """Count the events around each one, int64[n], by pointer doubling."""
    at, depth = around.copy(), (around >= 0).astype(np.int64)
    left = np.flatnonzero(at >= 0)
    while len(left):
        over = at[left]
        # All are read before any is written.
        depth[left], at[left] = depth[left] + depth[over], at[over]
        left = left[at[left] >= 0]
    return depth
