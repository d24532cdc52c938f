# SPDX-License-Identifier: MIT
"""Several kinds of events that one program recorded together, as one source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

from ftpatch.trace.accesses import Accesses
from ftpatch.trace.hits import Hits
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Part, Report
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, EventSource, Recording, SourceKind
from ftpatch.trace.totals import Totals

__all__ = ["Together", "fitted", "part_of"]


class Together:
    """The sources of each kind, ``parts``, in one recording: calls first, if there are any."""

    def __init__(self, parts: Sequence[EventSource]) -> None:
        self.parts = [*parts]
        first = parts[0].kind
        self.kind = SourceKind(
            what=" and ".join(part.kind.what for part in parts),
            data=reduce(or_, (part.kind.data for part in parts), Data.CALLS),
            default=first.default if first.data & Data.CALLS else "function",
            returns=first.returns,
            no_returns=first.no_returns,
            hint=first.hint,
        )

    @property
    def recording(self) -> Recording:
        """Processes, threads, names and the clock."""
        return self.parts[0].recording

    @property
    def has_returns(self) -> bool:
        """True if calls have returns."""
        return self.parts[0].has_returns

    @property
    def has_stacks(self) -> bool:
        """True if hits have stacks."""
        return any(part.has_stacks for part in self.parts)

    @property
    def steps(self) -> int:
        """Number of batches of rows."""
        return self.parts[0].steps

    def rows(self) -> Iterator[Rows]:
        """Calls, in batches."""
        calls = self.of(Data.CALLS)
        return iter(()) if calls is None else calls.rows()

    def hits(self) -> Hits | None:
        """Hits."""
        part = self.of(Data.HITS)
        return None if part is None else part.hits()

    def sums(self, header: int | None = None) -> Totals | None:
        """None: all are events."""

    def tally(self) -> tuple[Totals, list[Totals]] | None:
        """Sums over the functions of its calls."""
        return self.parts[0].tally()

    def accesses(self) -> Accesses | None:
        """Accesses to variables."""
        part = self.of(Data.ACCESSES)
        return None if part is None else part.accesses()

    def notes(self) -> list[str]:
        """Irregularities found so far."""
        return list(dict.fromkeys(note for part in self.parts for note in part.notes()))

    def close(self) -> None:
        """Close the files, which all parts share."""
        self.parts[0].close()

    def of(self, data: Data) -> EventSource | None:
        """The part with one kind of data, None without it."""
        return next((part for part in self.parts if part.kind.data & data), None)


def part_of(source: EventSource, data: Data) -> EventSource:
    """The first part of a source that has one of these kinds of data; the source itself if that is
    one kind of events, or none of its parts has."""
    if not isinstance(source, Together):
        return source
    return source.of(data) or source


class _Of(Report):
    """A report of one kind of events of those that are together."""

    name = ""
    shows = Data(0)

    def __init__(self, report: Report) -> None:
        self._report = report
        for name in ("name", "shows", "text", "binary", "folder", "page", "returns", "stacks"):
            setattr(self, name, getattr(report, name))
        for name in ("sums", "follows", "ends"):
            setattr(self, name, getattr(report, name))

    def render(self, source: EventSource, style: Style) -> Iterable[Part]:
        return self._report.render(part_of(source, self.shows), style)


def fitted(report: Report, source: EventSource) -> Report:
    """The report as it is of a source: of the kind of events that it shows, if it does not show
    several together."""
    return _Of(report) if isinstance(source, Together) and not report.together else report
