# SPDX-License-Identifier: MIT
"""Sources that read trace files: calls and profiles, and the base of the slices' sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.trace.accesses import Accesses
from ftpatch.trace.ahead import ahead
from ftpatch.trace.batches import Batch
from ftpatch.trace.header import Tracer
from ftpatch.trace.hits import Hits
from ftpatch.trace.match import Matcher
from ftpatch.trace.narrow import narrowed
from ftpatch.trace.profiles import read_profiles
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Data, EventSource, Recording, SourceKind
from ftpatch.trace.tally import tally
from ftpatch.trace.totals import Totals
from ftpatch.trace.window import Window

__all__ = ["SOURCES", "TraceEvents", "open_source", "read_rows"]


class TraceEvents:
    """A source that reads trace files, without any data; subclasses add theirs."""

    def __init__(self, kind: SourceKind, trace: Trace) -> None:
        self.kind, self.trace = kind, trace

    @property
    def recording(self) -> Recording:
        """Processes, threads, names and the clock."""
        return self.trace.recording

    @property
    def has_returns(self) -> bool:
        """True if any of the traces records returns."""
        return any(header.tracer != Tracer.FUNCTION for header in self.trace.headers)

    @property
    def steps(self) -> int:
        """Number of batches of rows."""
        return 0

    def rows(self) -> Iterator[Rows]:
        """Calls, in batches."""
        return iter(())

    def hits(self) -> Hits | None:
        """Hits."""
        return None

    def sums(self, header: int | None = None) -> Totals | None:
        """Sums recorded in place of events."""
        return None

    def tally(self) -> tuple[Totals, list[Totals]] | None:
        """Sums over the functions of its calls, without rows."""
        return None

    def accesses(self) -> Accesses | None:
        """Accesses to variables."""
        return None

    def notes(self) -> list[str]:
        """Irregularities found so far, one clause each."""
        return self.trace.notes()

    def close(self) -> None:
        """Close the files."""
        self.trace.close()


class _Calls(TraceEvents):
    """Calls recorded by function tracers."""

    @property
    def steps(self) -> int:
        return len(self.trace.batches)

    def rows(self) -> Iterator[Rows]:
        headers, owner = self.trace.headers, self.recording.owner
        points = np.array([h.tracer == Tracer.FUNCTION for h in headers], bool)
        return read_rows(self.trace.batches, self.recording, points[owner])

    def tally(self) -> tuple[Totals, list[Totals]] | None:
        return tally(self.trace)


class _Profile(TraceEvents):
    """Sums recorded by function_profile."""

    def sums(self, header: int | None = None) -> Totals:
        return read_profiles(self.trace, header)


def read_rows(
    batches: Iterable[Batch], recording: Recording, points: NDArray[np.bool_]
) -> Iterator[Rows]:
    """Yield the rows that the recording's window shows, in batches, finally those of frames still
    open. ``batches`` may be read more than once. ``points`` bool[t]: threads whose returns are not
    recorded."""
    return narrowed(partial(_every_row, batches, recording, points), recording)


def _every_row(
    batches: Iterable[Batch], recording: Recording, points: NDArray[np.bool_]
) -> Iterator[Rows]:
    owner, functions = recording.owner, recording.functions
    program = np.array(recording.program, np.int32)[owner] if len(owner) else owner
    matcher = Matcher(points)
    several = len(functions.programs) > 1

    def named(rows: Rows) -> Rows:
        which = program[rows.thread] if several else 0
        return rows.but(function=functions.ids(which, rows.func))

    matched = (matcher.feed(batch) for batch in batches if len(batch))
    for rows in ahead(matched):  # names grow, and are used by whoever takes the rows
        yield named(rows)
    for rows in matcher.finish():
        yield named(rows)


def open_source(paths: Sequence[Path], window: Window, kinds: Sequence[SourceKind]) -> EventSource:
    """Open trace files to report together. Raises InputError, and UsageError for files with
    different kinds of data, or for a thread that none of them has."""
    trace = Trace(paths, window)
    try:
        found = [_kind(header.tracer, kinds) for header in trace.headers]
        for number, kind in enumerate(found):
            if kind.data != Data.CALLS and any(one.data != kind.data for one in found):
                raise UsageError(
                    trace.headers[number].path,
                    f"{kind.what} cannot be reported together with traces of other events",
                    "report it separately",
                )
        assert found[0].open is not None
        return found[0].open(trace)
    except BaseException:
        trace.close()
        raise


def _kind(tracer: Tracer, kinds: Sequence[SourceKind]) -> SourceKind:
    return next(kind for kind in kinds if tracer in kind.tracers)


_FUNCTION: SourceKind = SourceKind(
    what="calls",
    data=Data.CALLS,
    default="function",
    open=lambda trace: _Calls(_FUNCTION, trace),
    tracers=(Tracer.FUNCTION,),
    returns=False,
    no_returns="the function tracer does not record returns",
    hint="trace with function_graph",
)
_GRAPH: SourceKind = SourceKind(
    what="calls",
    data=Data.CALLS,
    default="function_graph",
    open=lambda trace: _Calls(_GRAPH, trace),
    tracers=(Tracer.NOP, Tracer.FUNCTION_GRAPH, Tracer.USER),
)
_PROFILE: SourceKind = SourceKind(
    what="a profile",
    data=Data.SUMS,
    default="profile",
    open=lambda trace: _Profile(_PROFILE, trace),
    tracers=(Tracer.FUNCTION_PROFILE,),
)
SOURCES = (_FUNCTION, _GRAPH, _PROFILE)
