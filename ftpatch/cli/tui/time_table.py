# SPDX-License-Identifier: MIT
"""The calls of a thread in the order in which they began."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.cli.tui.cells import cut, moment, spent
from ftpatch.cli.tui.listing import Piece
from ftpatch.cli.tui.recorded import Recorded
from ftpatch.trace.rows import Kind
from ftpatch.trace.time_line import TimeLine

__all__ = ["TimeTable"]

NANO = 10**9
TIME, LASTED, DEPTH = 15, 12, 5
"""Columns of a moment, a duration and a depth."""
MARKS = {Kind.UNWOUND: "!", Kind.END: "+"}
"""Behind the duration of a call that was left without a return, or that was open at the end."""


class TimeTable:
    """One line for each call of a thread."""

    def __init__(self, recorded: Recorded, calls: TimeLine, thread: int) -> None:
        self.calls, self.thread = calls, thread
        self._recorded = recorded
        self._known = recorded.recording.has_clock
        self._part = calls.of(thread) if len(recorded.recording.tids) else slice(0, 0)
        self.message = "No calls were recorded."

    def __len__(self) -> int:
        return self._part.stop - self._part.start

    def heads(self, width: int) -> list[str]:
        """The thread, and names of the columns."""
        threads = len(self._recorded.recording.tids)
        who = self._recorded.thread(self.thread) if threads else "no threads"
        who += "; [ and ] show others" if threads > 1 else ""
        unit = "Seconds" if self._known else "Ticks"
        columns = f"{unit:>{TIME}} {'Duration':>{LASTED - 1}}  {'Depth':>{DEPTH}} Function"
        return [cut(who, width), columns]

    def line(self, index: int, width: int) -> list[Piece]:
        """Begin, duration, depth and name of a call, indented by its depth."""
        calls, call = self.calls, self._part.start + index
        lasted = spent(int(calls.duration[call]), self._known)
        mark = MARKS.get(Kind(int(calls.end[call])), " ")
        level = int(calls.level[call])
        numbers = f"{moment(int(calls.begin[call]), self._known):>{TIME}} "
        numbers += f"{lasted:>{LASTED - 1}}{mark} {level:>{DEPTH}} "
        room = width - len(numbers)
        indent = " " * min(2 * level, max(room // 2, 0))
        name = self._recorded.names[int(calls.function[call])]
        return [(numbers, ""), (cut(indent + name, room), "")]

    def function(self, index: int) -> int:
        """The function of a line."""
        return int(self.calls.function[self._part.start + index])

    def line_at(self, moment: int) -> int:
        """The line of the last call that began by a moment (nanoseconds)."""
        return self.calls.at(self.thread, moment) - self._part.start if len(self) else 0

    def line_of(self, text: str) -> int | None:
        """The line at a number of seconds; None for what is no number."""
        try:
            number = float(text) * (NANO if self._known else 1)
        except ValueError:
            return None
        bound = float(1 << 62)
        return self.line_at(int(max(-bound, min(number, bound))))

    def other_thread(self, step: int, line: int) -> tuple[TimeTable, int]:
        """The calls of the next thread, or the one before, and the line there of the moment when
        the call of this line began."""
        begin = int(self.calls.begin[self._part.start + line]) if len(self) else 0
        threads = max(len(self._recorded.recording.tids), 1)
        other = TimeTable(self._recorded, self.calls, (self.thread + step) % threads)
        return other, other.line_at(begin)

    def next(self, index: int, chosen: NDArray[np.bool_], *, back: bool = False) -> int | None:
        """The next line about chosen functions."""
        lines = np.flatnonzero(chosen[self.calls.function[self._part]])
        if not len(lines):
            return None
        at = int(np.searchsorted(lines, index, side="left" if back else "right"))
        return int(lines[at - 1 if back else at % len(lines)])
