# SPDX-License-Identifier: MIT
"""Calls as boxes along the time, of which there are not too many however long a trace is.

A call that takes less than ``shorter`` nanoseconds is drawn together with the calls in it, and with
its neighbours: those of the same caller that are as short, and not as far away. Where there are too
many boxes, ``shorter`` is doubled::

    shorter 0     main(parse(a a a a)  walk(b  c))
    shorter 8     main(parse(4 calls)  walk(b  c))
    shorter 64    main(7 calls..................)
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.pairs import segments
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.totals import ENDING
from ftpatch.trace.window import ALWAYS, Window

__all__ = ["MAX_LEVELS", "Boxes", "Timeline"]

MAX_BOXES = 1 << 15
"""Maximum boxes in the end."""
MAX_HELD = 1 << 16
"""Calls that are gathered before their number is reduced."""
MAX_LEVELS = 1024
"""Levels with boxes."""
THREAD_BITS = 40
"""Rows of one thread are numbered in as many bits; above them stands the thread."""


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """n boxes. ``thread`` int64[n]; ``level`` int64[n]; ``begin`` and ``end`` int64[n]: nanoseconds
    since the start; ``calls`` int64[n]: 1, or more where short ones are one box; ``function``
    int64[n]: of the longest of them, which took ``most`` int64[n]. ``opened`` and ``closed``
    int64[n]: the places of its first and last row among those of its thread."""

    thread: NDArray[np.int64]
    level: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    calls: NDArray[np.int64]
    function: NDArray[np.int64]
    most: NDArray[np.int64]
    opened: NDArray[np.int64]
    closed: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.thread)

    def take(self, index: NDArray[Any]) -> Boxes:
        """Select boxes by index or mask."""
        return Boxes(**{name: getattr(self, name)[index] for name in COLUMNS})


COLUMNS = [one.name for one in fields(Boxes)]


class Timeline:
    """Boxes of rows that come in batches."""

    def __init__(self, window: Window) -> None:
        self.shorter = 0
        """Nanoseconds that a call must take to have a box of its own."""
        self.deeper = 0
        """Calls that are left out for their level."""
        self._window = window
        self._parts: list[Boxes] = []
        self._held = 0
        self._rows: dict[int, int] = {}
        self._open: dict[int, NDArray[np.int64]] = {}

    def add(self, rows: Rows) -> None:
        """Add the calls that end in a batch."""
        if not len(rows):
            return
        place = self._places(rows)
        ended = np.flatnonzero(among(rows.kind, ENDING) & (rows.pair >= 0))
        begun = rows.pair[ended]
        level = np.maximum(rows.level[begun].astype(np.int64), 0)
        begin, end = rows.time[begun], np.maximum(rows.time[ended], rows.time[begun])
        low, high = self._window.span
        seen = (end >= low) & (begin <= high)
        self.deeper += int((seen & (level >= MAX_LEVELS)).sum())
        seen &= level < MAX_LEVELS
        low = max(low, 0)  # nothing is before the start, but in a damaged trace
        begin, end = np.clip(begin, low, high), np.clip(end, low, high)
        found = Boxes(
            thread=rows.thread[ended].astype(np.int64),
            level=level,
            begin=begin,
            end=end,
            calls=np.ones(len(ended), np.int64),
            function=rows.function[begun].astype(np.int64),
            most=end - begin,
            opened=place[begun],
            closed=place[ended],
        )
        self._parts.append(found.take(seen))
        self._held += len(self._parts[-1])
        if self._held > MAX_HELD:
            self._reduce()

    def boxes(self) -> Boxes:
        """All boxes, those of a thread together, a caller before its callees."""
        self._reduce()
        return self._parts[0]

    def _places(self, rows: Rows) -> NDArray[np.int64]:
        """Number the rows of each thread through all batches, int64[n], and remember where frames
        begin that are still open."""
        first = segments(rows.thread)
        thread = rows.thread[first].tolist()
        length = np.diff(first, append=len(rows))
        base = [(one << THREAD_BITS) + self._rows.get(one, 0) for one in thread]
        place = np.arange(len(rows)) + np.repeat(np.array(base) - first, length)
        opened = np.flatnonzero(rows.kind == Kind.OPEN)
        for part in np.split(opened, segments(rows.thread[opened])[1:]) if len(opened) else ():
            # With very many frames, the outermost are forgotten (match.MAX_OPEN).
            place[part] = self._open[int(rows.thread[part[0]])][-len(part) :]
        for one, more in zip(thread, length.tolist(), strict=True):
            self._rows[one] = self._rows.get(one, 0) + more
            self._open.pop(one, None)
        still = np.flatnonzero((rows.kind <= Kind.ENTER) & (rows.pair < 0))
        for part in np.split(still, segments(rows.thread[still])[1:]) if len(still) else ():
            self._open[int(rows.thread[part[0]])] = place[part]
        return place

    def _reduce(self) -> None:
        """Make boxes as few as they may be, the number of those held small."""
        held = _joined(self._parts)
        held = _merged(held.take(np.argsort(held.opened)), self.shorter, self._barriers())
        # No thread has less than one box, nor does any open frame between its calls.
        while len(held) > MAX_BOXES and self.shorter <= ALWAYS[1]:
            longest = int(np.partition(held.end - held.begin, -MAX_BOXES)[-MAX_BOXES])
            self.shorter = max(2 * self.shorter, 1 << longest.bit_length() >> 1, 1)
            held = _merged(held, self.shorter, self._barriers())
        self._parts, self._held = [held], len(held)

    def _barriers(self) -> NDArray[np.int64]:
        return np.concatenate([np.empty(0, np.int64), *self._open.values()])


def _joined(parts: list[Boxes]) -> Boxes:
    none = np.empty(0, np.int64)
    return Boxes(**{c: np.concatenate([none, *(getattr(p, c) for p in parts)]) for c in COLUMNS})


def _merged(boxes: Boxes, shorter: int, open_: NDArray[np.int64]) -> Boxes:
    """Merge short calls, of boxes by ``opened``; ``open_``: where frames begin that are not among
    them."""
    short = (boxes.calls > 1) | (boxes.end - boxes.begin < shorter)
    tiny, others = boxes.take(short), boxes.take(~short)
    if not len(tiny):
        return boxes
    within = np.maximum.accumulate(tiny.closed)
    outer = np.append(True, tiny.opened[1:] > within[:-1])
    top = tiny.take(outer)
    barriers = np.sort(np.concatenate([others.opened, others.closed, open_]))
    between = np.searchsorted(barriers, top.opened[1:]) > np.searchsorted(barriers, top.closed[:-1])
    between |= top.thread[1:] != top.thread[:-1]
    between |= top.begin[1:] - top.end[:-1] >= shorter
    starts = np.zeros(len(tiny), bool)
    starts[np.flatnonzero(outer)[np.append(True, between)]] = True
    first = np.flatnonzero(starts)
    group = np.cumsum(starts) - 1
    most = np.maximum.reduceat(tiny.most, first)
    longest = np.flatnonzero(tiny.most == most[group])
    longest = longest[np.append(True, np.diff(group[longest]) > 0)]
    head = tiny.take(first)
    merged = Boxes(
        thread=head.thread,
        level=head.level,
        begin=head.begin,
        end=np.maximum.reduceat(tiny.end, first),
        calls=np.add.reduceat(tiny.calls, first),
        function=tiny.function[longest],
        most=most,
        opened=head.opened,
        closed=np.maximum.reduceat(tiny.closed, first),
    )
    whole = _joined([others, merged])
    return whole.take(np.argsort(whole.opened))
