# SPDX-License-Identifier: MIT
"""Sources that read trace files: calls and profiles, and the base of the slices' sources."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.trace.accesses import Accesses
from ftpatch.trace.ahead import ahead
from ftpatch.trace.batches import Batch, batch_of
from ftpatch.trace.followed import Followed, Pace
from ftpatch.trace.header import Header, Tracer, open_trace
from ftpatch.trace.hits import Hits
from ftpatch.trace.match import Matcher
from ftpatch.trace.narrow import narrowed
from ftpatch.trace.profiles import read_profiles
from ftpatch.trace.reader import Opened, OpenFile, Trace
from ftpatch.trace.rows import Rows
from ftpatch.trace.several_kinds import Together
from ftpatch.trace.source import Data, EventSource, Recording, SourceKind
from ftpatch.trace.tally import tally
from ftpatch.trace.totals import Totals
from ftpatch.trace.window import Window

__all__ = ["SOURCES", "TraceEvents", "follow_source", "open_source", "read_rows"]


class TraceEvents:
    """A source that reads trace files, without any data; subclasses add theirs."""

    def __init__(self, kind: SourceKind, trace: Opened) -> None:
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
    def has_stacks(self) -> bool:
        """True if hits have stacks."""
        return False

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

    trace: Trace

    @property
    def steps(self) -> int:
        return len(self.trace.batches)

    def rows(self) -> Iterator[Rows]:
        return read_rows(self.trace.batches, self.recording, _points(self.trace))

    def tally(self) -> tuple[Totals, list[Totals]] | None:
        return tally(self.trace)


class _FollowedCalls(TraceEvents):
    """Calls that are being recorded."""

    trace: Followed

    def rows(self) -> Iterator[Rows]:
        return narrowed(self._every_row, self.recording)

    def _every_row(self) -> Iterator[Rows]:
        matcher = Matcher(np.empty(0, bool))
        for part in self.trace.parts(lambda *_: None):
            matcher.grow(_points(self.trace))
            batch = batch_of(
                part.words,
                part.found,
                part.time,
                thread=part.thread,
                opened=part.open,
                start=part.start,
                until=part.until,
            )
            yield _named(matcher.feed(batch), self.recording)
        for rows in matcher.finish():
            yield _named(rows, self.recording)


class _Profile(TraceEvents):
    """Sums recorded by function_profile."""

    trace: Trace

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
    matcher = Matcher(points)
    matched = (matcher.feed(batch) for batch in batches if len(batch))
    for rows in ahead(matched):  # names grow, and are used by whoever takes the rows
        yield _named(rows, recording)
    for rows in matcher.finish():
        yield _named(rows, recording)


def _named(rows: Rows, recording: Recording) -> Rows:
    """Number the functions of rows."""
    functions = recording.functions
    which: NDArray[np.int32] | int = 0
    if len(functions.programs) > 1:
        which = np.array(recording.program, np.int32)[recording.owner[rows.thread]]
    return rows.but(function=functions.ids(which, rows.func))


def _points(trace: Opened) -> NDArray[np.bool_]:
    """Mark the threads whose returns are not recorded, bool[t]."""
    points = np.array([header.tracer == Tracer.FUNCTION for header in trace.headers], bool)
    return points[trace.recording.owner]


def open_source(paths: Sequence[Path], window: Window, kinds: Sequence[SourceKind]) -> EventSource:
    """Open trace files to report together. Raises InputError, and UsageError for files with
    different kinds of data, or for a thread that none of them has."""
    parts = _parts(paths, window, kinds)
    if parts is not None:
        return parts
    trace = Trace(paths, window)
    try:
        found = _kind_of(trace.headers, kinds)
        assert found.open is not None
        return found.open(trace)
    except BaseException:
        trace.close()
        raise


def _parts(paths: Sequence[Path], window: Window, kinds: Sequence[SourceKind]) -> Together | None:
    """Open traces of programs that recorded several kinds of events; None for others. Raises
    UsageError for both together."""
    headers = [_header(path) for path in paths]
    if not any(header.together for header in headers):
        return None
    for header in headers:
        if header.together != headers[0].together or header.tracer != headers[0].tracer:
            reason = "it has other kinds of events than the traces that it is reported with"
            raise UsageError(header.path, reason, "report it separately")
    traces = Trace.parts(paths, window)
    try:
        opened = []
        for trace in traces:
            found = _kind_of(trace.headers, kinds)
            assert found.open is not None
            opened.append(found.open(trace))
        return Together(opened)
    except BaseException:
        traces[0].close()
        raise


def _header(path: Path) -> Header:
    fd, header = open_trace(path)
    os.close(fd)
    return header


def follow_source(
    sources: Sequence[OpenFile], window: Window, kinds: Sequence[SourceKind], pace: Pace
) -> EventSource:
    """Follow open trace files together, as ``pace`` says; they are closed with the source, or
    where this raises what open_source raises, and UsageError for data that are not events."""
    trace = Followed(sources, window, pace)
    several = next((header for header in trace.headers if header.together), None)
    if several is not None:
        trace.close()
        reason = "it has several kinds of events, which cannot be followed"
        raise UsageError(several.path, reason, "report it without --follow")
    try:
        found = _kind_of(trace.headers, kinds)
        if found.follow is None:
            reason = f"{found.what} cannot be followed: it has sums, not events"
            raise UsageError(trace.headers[0].path, reason, "report it without --follow")
        return found.follow(trace)
    except BaseException:
        trace.close()
        raise


def _kind_of(headers: Sequence[Header], kinds: Sequence[SourceKind]) -> SourceKind:
    """The kind of traces. Raises UsageError for different ones."""
    found = [_kind(header.tracer, kinds) for header in headers]
    for number, kind in enumerate(found):
        if kind.data != Data.CALLS and any(one.data != kind.data for one in found):
            raise UsageError(
                headers[number].path,
                f"{kind.what} cannot be reported together with traces of other events",
                "report it separately",
            )
    return found[0]


def _kind(tracer: Tracer, kinds: Sequence[SourceKind]) -> SourceKind:
    return next(kind for kind in kinds if tracer in kind.tracers)


_FUNCTION: SourceKind = SourceKind(
    what="calls",
    data=Data.CALLS,
    default="function",
    open=lambda trace: _Calls(_FUNCTION, trace),
    follow=lambda trace: _FollowedCalls(_FUNCTION, trace),
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
    follow=lambda trace: _FollowedCalls(_GRAPH, trace),
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
