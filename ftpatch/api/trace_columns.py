# SPDX-License-Identifier: MIT
"""Traces as columns, for pandas, polars and numpy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.api.report_programs import Programs
from ftpatch.api.report_sources import open_events
from ftpatch.api.site_columns import patterns
from ftpatch.core.columns import objects
from ftpatch.trace.accesses import Accesses
from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import Column, Hits, Show
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.source import EventSource
from ftpatch.trace.totals import total
from ftpatch.trace.window import Window

__all__ = ["Columns", "Trace"]

AnyPath = str | os.PathLike[str]
Columns = dict[str, NDArray[Any]]
"""1-D arrays of one length, by name."""
LAST = np.isin(list(Kind), [Kind.LEAVE, Kind.UNWOUND, Kind.END, Kind.POINT])
"""By kind of row: whether a call is told there."""


class Trace:
    """The recording of a program and its children, of which ``paths`` are the files; or with
    ``image`` the stream of a kernel's boot tracer.

    ``image`` is the program where it has moved. ``notes`` are lines about what is missing: a
    program that has changed since then, events that were lost; complete when the columns are read.
    Raises InputError for what is no trace.
    """

    def __init__(
        self,
        *paths: AnyPath,
        image: AnyPath | None = None,
        filter: str | Sequence[str] = (),
        demangle: bool = True,
    ) -> None:
        self.paths = tuple(map(Path, paths))
        self.notes: list[str] = []
        self._image = None if image is None else Path(image)
        self._globs = tuple(patterns(filter))
        self._plain = not demangle
        source = self._open()
        self.kind: str = source.kind.what
        self._close(source)

    def __repr__(self) -> str:
        return f"<{self.kind} of {', '.join(map(str, self.paths))}>"

    def columns(self) -> Columns:
        """One row for each thing recorded, by time, as arrays of one length.

        Calls: ``time`` (when it began) and ``duration``, nanoseconds (-1: not known), ``pid``,
        ``tid``, ``depth``, ``function`` (str) and its link ``address``. Hits of probes: ``time``,
        ``duration``, ``pid``, ``tid``, ``probe``, ``function``, and a column for each value, None
        where a hit has none. Accesses to variables: ``time``, ``pid``, ``tid``, ``symbol``,
        ``access``, ``function``, ``old``, ``new``. Of a profile, as ``profile`` has it.
        """
        source = self._open()
        try:
            hits, accesses = source.hits(), source.accesses()
            if hits is not None:
                return _hits(source, hits)
            if accesses is not None:
                return _accesses(source, accesses)
            return _calls(source) if source.sums() is None else _profile(source)
        finally:
            self._close(source)

    def profile(self) -> Columns:
        """One row for each function, by falling time: ``function`` (str), ``address``, ``hits``,
        and in nanoseconds ``total`` and ``self``, without what it called."""
        source = self._open()
        try:
            return _profile(source)
        finally:
            self._close(source)

    def _open(self) -> EventSource:
        self.notes = []
        source = open_events(self.paths, Window(globs=self._globs), image=self._image)
        try:
            told = self.notes.append
            source.recording.name_by(Programs(self._image, plain=self._plain, tell=told).of)
        except BaseException:
            source.close()
            raise
        return source

    def _close(self, source: EventSource) -> None:
        headers = source.recording.headers
        self.notes += [f"{header.path}: {note}" for header in headers for note in header.notes]
        self.notes += source.notes()
        source.close()


def _calls(source: EventSource) -> Columns:
    recording = source.recording
    parts = [_told(rows) for rows in source.rows()]
    thread, time, duration, depth, function = (
        np.concatenate([part[index] for part in parts] or [np.empty(0, np.int64)])
        for index in range(5)
    )
    order = np.lexsort((depth, time))
    functions, thread, function = recording.functions, thread[order], function[order]
    return {
        "time": time[order],
        "duration": duration[order],
        "pid": np.array(recording.pids, np.int64)[thread],
        "tid": np.array(recording.tids, np.int64)[thread],
        "depth": depth[order],
        "function": objects(functions.name)[function],
        "address": np.array(functions.address, np.uint64)[function],
    }


def _told(rows: Rows) -> tuple[NDArray[Any], ...]:
    """Thread, begin, duration, depth and function of the calls that are told in a batch."""
    row = np.flatnonzero(LAST[rows.kind])
    row = row[(rows.kind[row] == Kind.POINT) | (rows.pair[row] != UNKNOWN)]
    point = rows.kind[row] == Kind.POINT
    begun = np.where(point, row, rows.pair[row])
    duration = np.where(rows.kind[row] == Kind.LEAVE, rows.duration[row], UNKNOWN)
    return rows.thread[row], rows.time[begun], duration, rows.level[begun], rows.function[row]


def _profile(source: EventSource) -> Columns:
    totals, recording = source.sums(), source.recording
    if source.hits() is not None or source.accesses() is not None:
        from ftpatch.errors import UsageError

        raise UsageError(None, f"{source.kind.what} have no profile of functions", "use columns()")
    if totals is None:
        totals = total(source.rows(), recording.functions, recording.window)
    functions = recording.functions
    return {
        "function": objects(functions.name)[totals.function],
        "address": np.array(functions.address, np.uint64)[totals.function],
        "hits": totals.hits,
        "total": totals.time,
        "self": totals.own,
    }


def _hits(source: EventSource, hits: Hits) -> Columns:
    recording = source.recording
    places = Places(recording, str)
    pairs = zip(hits.header, hits.points, strict=True)
    functions = [places.function(header, point)[0] for header, point in pairs]
    returns = np.array([point.returns for point in hits.points], bool)[hits.point]
    out: Columns = {
        "time": hits.begin,
        "duration": np.where(returns, hits.time - hits.begin, UNKNOWN),
        "pid": np.array(recording.pids, np.int64)[hits.thread],
        "tid": np.array(recording.tids, np.int64)[hits.thread],
        "probe": objects([point.name for point in hits.points])[hits.point],
        "function": objects(functions)[hits.point],
    }
    values: Columns = {}
    for number in range(len(hits.points)):
        rows = np.flatnonzero(hits.point == number)
        for column in hits.group(number, rows).values:
            name = column.field.name
            name += "_value" * (name in out)
            values.setdefault(name, np.full(len(hits), None, object))[rows] = _values(column)
    return out | {name: _plain(held) for name, held in values.items()}


def _values(column: Column) -> NDArray[np.object_]:
    """Numbers, and strings; None for what could not be read."""
    held: Sequence[object] = column.number.tolist()
    if column.field.show is Show.STRING:
        held = [text.decode("utf-8", "backslashreplace") for text in column.strings()]
    out = objects(held)
    out[column.lost] = None
    return out


def _plain(held: NDArray[np.object_]) -> NDArray[Any]:
    """The same as integers, where each is one and all have room."""
    if not all(type(value) is int for value in held):
        return held
    signed = any(value < 0 for value in held)
    return held.astype(np.int64 if signed or max(held, default=0) < 1 << 63 else np.uint64)


def _accesses(source: EventSource, accesses: Accesses) -> Columns:
    recording, every = source.recording, list(accesses)
    thread = np.array([access.thread for access in every], np.intp)
    return {
        "time": np.array([access.time for access in every], np.int64),
        "pid": np.array(recording.pids, np.int64)[thread],
        "tid": np.array(recording.tids, np.int64)[thread],
        "symbol": objects([access.variable.symbol for access in every]),
        "access": objects([access.kind for access in every]),
        "function": objects([access.function for access in every]),
        "old": np.array([access.before for access in every], np.uint64),
        "new": np.array([access.after for access in every], np.uint64),
    }
