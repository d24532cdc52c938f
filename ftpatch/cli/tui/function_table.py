# SPDX-License-Identifier: MIT
"""Functions with their calls and times, in any order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.cli.tui.cells import cut, spent
from ftpatch.cli.tui.listing import Piece
from ftpatch.cli.tui.recorded import Recorded

__all__ = ["FunctionTable"]

CALLS, TIME = 9, 11
"""Columns of a number, and of a time."""
NAME = 20
"""Columns that names have at least, if times can make room for them."""
TIMES = ("Self", "Total", "Avg")


class FunctionTable:
    """One line for each function. ``sort`` is the column that they are ordered by: first by their
    own time, as in the summary that ``trace`` prints."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        totals = recorded.totals
        timed = bool(totals.time.any()) or recorded.source.has_returns
        self.columns = (*TIMES, "Calls", "Name") if timed else ("Calls", "Name")
        self._timed = timed
        self._known = recorded.recording.has_clock
        self.sort = self.columns[0]
        self.falling = True
        self.message = "No calls were recorded."
        self.by(self.sort)

    def __len__(self) -> int:
        return len(self._order)

    def by(self, column: str, *, falling: bool | None = None) -> None:
        """Order by a column: numbers fall and names rise, unless it is said otherwise."""
        totals = self._recorded.totals
        self.sort = column
        self.falling = column != "Name" if falling is None else falling
        keys = {
            "Total": totals.time,
            "Self": totals.own,
            "Avg": totals.average,
            "Calls": totals.hits,
        }
        key = keys.get(column)
        if key is None:
            key = self._alphabetic()
        self._order = np.argsort(-key if self.falling else key, kind="stable")
        self._functions = totals.function[self._order]

    def by_next(self) -> None:
        """Order by the next column."""
        at = self.columns.index(self.sort)
        self.by(self.columns[(at + 1) % len(self.columns)])

    def heads(self, width: int) -> list[str]:
        """Names of the columns; the one that orders them has an arrow."""
        said = {name: name for name in ("Calls", "Total", "Self", "Avg", "Name")}
        said[self.sort] += "▼" if self.falling else "▲"
        said["Name"] = said["Name"].replace("Name", "Function")
        numbers = f"{said['Calls']:>{CALLS}} "
        if self._timed:
            numbers += "".join(f"{said[name]:>{TIME}} " for name in TIMES[: _times(width)])
        return [numbers + said["Name"]]

    def line(self, index: int, width: int) -> list[Piece]:
        """Numbers and name of a function."""
        row, totals = int(self._order[index]), self._recorded.totals
        numbers = f"{int(totals.hits[row]):>{CALLS}} "
        if self._timed:
            times = (totals.own, totals.time, totals.average)
            for column in times[: _times(width)]:
                numbers += f"{spent(int(column[row]), self._known):>{TIME}} "
        name = self._recorded.names[int(totals.function[row])]
        return [(numbers, ""), (cut(name, width - len(numbers)), "")]

    def function(self, index: int) -> int:
        """The function of a line."""
        return int(self._functions[index])

    def line_of(self, function: int) -> int:
        """The line of a function; the first one, if it has none."""
        found = np.flatnonzero(self._functions == function)
        return int(found[0]) if len(found) else 0

    def next(self, index: int, chosen: NDArray[np.bool_], *, back: bool = False) -> int | None:
        """The next line about chosen functions."""
        lines = np.flatnonzero(chosen[self._functions])
        if not len(lines):
            return None
        at = int(np.searchsorted(lines, index, side="left" if back else "right"))
        return int(lines[at - 1 if back else at % len(lines)])

    def _alphabetic(self) -> NDArray[np.intp]:
        """The place of each line's name among all names."""
        names = [self._recorded.names[number] for number in self._recorded.totals.function.tolist()]
        place = np.empty(len(names), np.intp)
        place[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return place


def _times(width: int) -> int:
    """Number of times that there is room for."""
    return max(1, min((width - CALLS - 1 - NAME) // (TIME + 1), len(TIMES)))
