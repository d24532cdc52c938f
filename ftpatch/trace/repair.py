# SPDX-License-Identifier: MIT
"""The slow path for threads with exits that are not of the innermost open frame."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.decode import Event
from ftpatch.trace.rows import Kind, Rows

__all__ = ["Suspended", "repair"]

MAX_SUSPENDED = 1 << 16
"""Maximum unwound frames remembered per thread."""


class Suspended:
    """Frames of one thread that were left without a return, and may yet return."""

    def __init__(self) -> None:
        self._times: dict[int, list[tuple[int, int]]] = {}
        self._count = 0

    def put(self, func: int, entered: int, left: int) -> None:
        """Add one, with the times at which it was entered and left. If there are very many, all but
        each function's newest are forgotten: a program that throws a million exceptions will not
        return to them."""
        if self._count >= MAX_SUSPENDED:
            self._times = {func: times[-1:] for func, times in self._times.items()}
            self._count = len(self._times)
        self._times.setdefault(func, []).append((entered, left))
        self._count += 1

    def take(self, func: int) -> tuple[int, int] | None:
        """Remove this function's newest one; return when it was entered and left, None if there is
        none."""
        times = self._times.get(func)
        if not times:
            return None
        self._count -= 1
        last = times.pop()
        if not times:
            del self._times[func]
        return last


def repair(rows: Rows, events: NDArray[np.uint8], start: int, stop: int, left: Suspended) -> Rows:
    """Repair one thread's rows, from ``start`` to ``stop``, so that every exit is of the innermost
    frame. ``events`` uint8[n] are the types of the underlying events.

    An exit of an outer frame leaves those inside it; one of a function that is not open is the
    RETURN of that function's last unwound frame, if known.
    """
    index: list[int] = []
    kinds: list[int] = []
    funcs: list[int] = []
    returns: list[tuple[int, int, int]] = []
    stack: list[tuple[int, int]] = []
    open_now: Counter[int] = Counter()

    def tell(row: int, kind: int, func: int) -> None:
        index.append(row)
        kinds.append(kind)
        funcs.append(func)

    def leave(row: int) -> None:
        func, entered = stack.pop()
        open_now[func] -= 1
        left.put(func, entered, int(rows.time[row]))
        tell(row, Kind.UNWOUND, func)

    columns = (events, rows.kind, rows.func, rows.time)
    table = zip(*(column[start:stop].tolist() for column in columns), strict=True)
    for row, (event, kind, func, time) in enumerate(table, start):
        if event == Event.SYNC:
            while len(stack) > func:
                leave(row)
        elif event == Event.UNWOUND:
            for _ in range(min(func, len(stack))):
                leave(row)
        elif kind == Kind.LEAVE and not open_now[func]:
            seen = left.take(func)
            if seen is not None:
                returns.append((len(index), time - seen[0], time - seen[1]))
            tell(row, Kind.RETURN, func)
        elif kind == Kind.LEAVE:
            while stack[-1][0] != func:
                leave(row)
            stack.pop()
            open_now[func] -= 1
            tell(row, kind, func)
        else:
            if kind <= Kind.ENTER:
                stack.append((func, time))
                open_now[func] += 1
            tell(row, kind, func)
    out = rows.take(np.array(index, np.intp))
    kind_column = np.array(kinds, np.uint8)
    flags = np.where(kind_column == Kind.UNWOUND, 0, out.flags).astype(np.uint8)
    duration, late = out.duration.copy(), out.late.copy()
    if returns:
        at, whole, since = np.array(returns, np.int64).T
        duration[at], late[at] = np.maximum(whole, 0), np.maximum(since, 0)
    return out.but(
        kind=kind_column,
        func=np.array(funcs, np.uint32),
        duration=duration,
        late=late,
        flags=flags,
    )
