# SPDX-License-Identifier: MIT
"""A report for a terminal that asked for none: the usual one or, instead of one that nobody would
read to its end, the functions that took most of the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ftpatch.names.short_names import fitted
from ftpatch.trace.by_process import whole_totals
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import EventSource
from ftpatch.trace.totals import Totals

__all__ = ["Brief", "Screen"]

MAX_LINES = 100
"""Lines of a usual report that is printed, if the screen does not have more."""
AROUND = 8
"""Lines of a summary that are not functions, and one for the shell's prompt."""
MIN_FUNCTIONS = 5
"""Functions that any screen has room for."""
LEAST = 11
"""Columns that a number has at least."""
MIN_NAME = 16
"""Columns that a name has, on however narrow a screen."""


@dataclass(frozen=True)
class Screen:
    """The size of a terminal."""

    columns: int
    lines: int


class Brief(Report):
    """``usual`` is the report to show where it is short, ``more`` a line on how to see all of a
    longer one."""

    text = True
    sums = True

    def __init__(self, usual: Report, screen: Screen, more: str) -> None:
        self.name, self.shows = usual.name, usual.shows
        self._usual, self._screen, self._more = usual, screen, more

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        """The usual report is made as far as it is short, so nothing is estimated."""
        longest, parts = max(MAX_LINES, self._screen.lines), list[str]()
        for part in self._usual.render(source, style):
            assert isinstance(part, str)
            parts.append(part)
            longest -= part.count("\n")
            if longest < 0:
                break
        if longest >= 0:
            yield from parts
            return
        yield from self._summary(source, style)

    def _summary(self, source: EventSource, style: Style) -> Iterator[str]:
        totals = whole_totals(source, style.rows(source))
        yield from style.header()
        yield f"# {_counted(int(totals.hits.sum()), 'call')} of "
        order = "self time" if source.has_returns else "calls"
        yield f"{_counted(len(totals.function), 'function')}{_where(source)}, by {order}\n#\n"
        yield from self._lines(source, totals, style)
        yield f"#\n# {self._more}\n"

    def _lines(self, source: EventSource, totals: Totals, style: Style) -> Iterator[str]:
        """By descending time of their own, or where that is not known, by calls. All times are in
        microseconds, as ftrace's are: they stand below each other to be compared."""
        timed, known = source.has_returns, source.recording.has_clock
        names = style.names(source.recording.functions)
        rows = sorted(totals.rows(), key=lambda row: (row[3], row[2], row[1]), reverse=True)
        if not timed:
            rows.sort(key=lambda row: row[1], reverse=True)
        shown = max(self._screen.lines - AROUND - len(style.notes), MIN_FUNCTIONS)
        cells = [
            [_time(max(ns, 0), known) if timed else "-" for ns in (own, time)]
            for _, _, time, own in rows[:shown]
        ]
        width = max([LEAST, *(len(cell) for pair in cells for cell in pair)])
        for self_, total_, calls, name in (
            ("Self", "Total", "Calls", "Function"),
            ("----", "-----", "-----", "--------"),
        ):
            yield f"#{self_:>{width - 1}} {total_:>{width}} {calls:>{LEAST}}  {name}\n"
        for (function, hits, _, _), (spent, whole) in zip(rows, cells, strict=False):
            numbers = f"{spent:>{width}} {whole:>{width}} {hits:>{LEAST}}  "
            room = max(self._screen.columns - len(numbers), MIN_NAME)
            name = names[function]
            yield f"{numbers}{fitted(name, room) if style.short else name}\n"
        if len(rows) > shown:
            yield f"# and {_counted(len(rows) - shown, 'function')} more\n"


def _where(source: EventSource) -> str:
    """The threads, if there are several."""
    threads = len(source.recording.tids)
    return f" in {threads} threads" if threads > 1 else ""


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _time(ns: int, known: bool) -> str:
    """Three decimals, which stand below each other; ticks, where the clock's rate is not
    ``known``."""
    return f"{ns // 1000}.{ns % 1000:03} us" if known else f"{ns} tick{'s' * (ns != 1)}"
