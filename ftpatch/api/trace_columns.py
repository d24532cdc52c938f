# SPDX-License-Identifier: MIT
"""Traces as columns, for pandas, polars and numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.api.call_columns import Columns, argument_columns, call_columns, plain
from ftpatch.api.call_filters import CallFilters, named_as_parameters
from ftpatch.api.given import (
    AnyPath,
    path_of,
    patterns,
    require_text,
    whole_number,
    whole_numbers,
)
from ftpatch.api.report_programs import Programs
from ftpatch.api.report_sources import open_events
from ftpatch.core.columns import objects
from ftpatch.errors import UsageError
from ftpatch.trace.accesses import Accesses
from ftpatch.trace.address_names import Places
from ftpatch.trace.by_process import whole_totals
from ftpatch.trace.children import children_of
from ftpatch.trace.hits import FLOATS, Column, Hits, Show, floats
from ftpatch.trace.rows import UNKNOWN
from ftpatch.trace.several_kinds import part_of
from ftpatch.trace.source import Data, EventSource
from ftpatch.trace.window import ALWAYS, Window, parse_span
from ftpatch.tracer.bring_out import recorded

__all__ = ["Columns", "Trace", "access_columns"]


class Trace:
    """The recording of a program, of which ``path`` and ``others`` are the files, and of its
    children, whose files beside them are taken in unless ``children`` is False; or with ``image``
    the stream of a kernel's boot tracer.

    ``image`` is the program where it has moved; with ``force`` it may be another one. ``filter``
    (``-f``), ``only`` (``-F``), ``max_depth`` (``-D``), ``time_filter`` (``-t``, such as
    ``"10us"``), ``trigger`` (``"serve@on"``), ``max_calls``, ``time`` (``"0.5-2"``, seconds) and
    ``tid`` select as the options of ``ftpatch report`` do. ``notes`` are lines about what is
    missing: a program that has changed since then, events that were lost; complete when the columns
    are read. Raises InputError for a file that is not a trace, UsageError for filters that the
    recording does not have the data for; ``columns()`` raises it for filters that match nothing.
    """

    def __init__(
        self,
        path: AnyPath,
        /,
        *others: AnyPath,
        image: AnyPath | None = None,
        filter: str | Sequence[str] = (),
        only: str | Sequence[str] = (),
        max_depth: int | None = None,
        time_filter: str | None = None,
        trigger: str | Sequence[str] = (),
        max_calls: int | None = None,
        time: str | None = None,
        tid: int | Sequence[int] = (),
        children: bool = True,
        demangle: bool = True,
        force: bool = False,
    ) -> None:
        named = tuple(recorded(path_of("path", one)) for one in (path, *others))
        self.paths = (*named, *(children_of(named) if children else ()))
        self.notes: list[str] = []
        self._image = None if image is None else path_of("image", image)
        require_text(time_filter=time_filter, time=time)
        self._filters = CallFilters(
            only=tuple(patterns("only", only)),
            depth=None if max_depth is None else whole_number("max_depth", max_depth),
            least=time_filter,
            calls=None if max_calls is None else whole_number("max_calls", max_calls),
            triggers=tuple(patterns("trigger", trigger)),
        )
        self._others = {
            "span": ALWAYS if time is None else _span(time),
            "tids": frozenset(whole_numbers("tid", tid)),
            "globs": tuple(patterns("filter", filter)),
        }
        self._plain, self._force = not demangle, force
        with named_as_parameters():
            source = self._open()
        self.kind: str = source.kind.what
        self._close(source)

    def __repr__(self) -> str:
        return f"<{self.kind} of {', '.join(map(str, self.paths))}>"

    def columns(self) -> Columns:
        """One row for each thing recorded, by time, as arrays of one length; of calls that were
        recorded together with other events, the calls.

        Calls: ``time`` (when it began) and ``duration``, nanoseconds (-1: not known), ``pid``,
        ``tid``, ``depth``, ``function`` (str) and its link ``address``; of a recording with
        arguments ``arg1`` to ``arg6`` and ``value``, words as they were in registers or on the
        stack, None for what is not known: ``arguments`` has them typed. Hits of probes: ``time``,
        ``duration``, ``pid``, ``tid``, ``probe``, ``function``, and a column for each value, None
        where a hit has none. Accesses to variables: ``time``, ``pid``, ``tid``, ``symbol``,
        ``access``, ``function``, ``old``, ``new``. Of a profile, as ``profile`` has it.
        """
        return self._read(_columns)

    def profile(self) -> Columns:
        """One row for each function, by descending time: ``function`` (str), ``address``, ``hits``,
        and in nanoseconds ``total`` and ``self``, without what it called."""
        return self._read(_profile)

    def arguments(self, function: str) -> Columns:
        """One row for each call of a function, or of those that a pattern matches, with a column
        for each of its parameters.

        The columns are those of calls, then the parameters by name, and ``value``, the word that
        was returned. Debug information says how a parameter is declared: numbers and booleans
        get typed columns, characters and enumerators str, structures dicts, arrays lists,
        pointers str; None is what was not recorded. Without it there are ``arg1`` to ``arg6``. A
        parameter whose name another column has gets ``_value`` behind it. Raises UsageError for a
        function that does not occur, and for a recording without arguments.
        """
        require_text(function=function)

        def read(source: EventSource) -> Columns:
            chosen, functions = Window(globs=(function,)), source.recording.functions
            _require_calls(source, "arguments")
            found = argument_columns(source, lambda: chosen.keeps(functions))
            chosen.require_match(functions)
            if "value" not in found:
                path, hint = source.recording.headers[0].path, "trace with --args"
                raise UsageError(path, "its calls have no arguments", hint)
            return found

        return self._read(read)

    def _read(self, read: Callable[[EventSource], Columns]) -> Columns:
        """What ``read`` makes of the events, whose filters must match something."""
        source = self._open()
        try:
            with named_as_parameters():
                found, window = read(source), source.recording.window
                if window.wanted:
                    window.require_match(source.recording.functions)
            return found
        finally:
            self._close(source)

    def _open(self) -> EventSource:
        self.notes = []
        window = self._filters.window(**self._others)
        opened = open_events(self.paths, window, image=self._image, force=self._force)
        source = part_of(opened, Data.CALLS)
        try:
            told = self.notes.append
            programs = Programs(self._image, force=self._force, plain=self._plain, tell=told)
            source.recording.name_by(programs.of)
        except BaseException:
            source.close()
            raise
        return source

    def _close(self, source: EventSource) -> None:
        headers = source.recording.headers
        self.notes += [f"{header.path}: {note}" for header in headers for note in header.notes]
        self.notes += source.notes()
        source.close()


def _span(text: str) -> tuple[int, int]:
    with named_as_parameters():
        return parse_span(text)


def _columns(source: EventSource) -> Columns:
    hits, accesses = source.hits(), source.accesses()
    if hits is not None:
        return _hits(source, hits)
    if accesses is not None:
        return access_columns(source, accesses)
    return call_columns(source) if source.sums() is None else _profile(source)


def _require_calls(source: EventSource, what: str) -> None:
    """Raise UsageError for events that are no calls."""
    if not source.kind.data & Data.CALLS:
        path = source.recording.headers[0].path
        raise UsageError(path, f"{source.kind.what} have no {what} of calls", "use columns()")


def _profile(source: EventSource) -> Columns:
    if not source.kind.data & (Data.CALLS | Data.SUMS):
        raise UsageError(None, f"{source.kind.what} have no profile of functions", "use columns()")
    totals, functions = whole_totals(source, source.rows()), source.recording.functions
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
    return out | {name: plain(held) for name, held in values.items()}


def _values(column: Column) -> NDArray[np.object_]:
    """Numbers, and strings; None for what could not be read."""
    held: Sequence[object] = column.number.tolist()
    if column.field.show is Show.STRING:
        held = [text.decode("utf-8", "backslashreplace") for text in column.strings()]
    if column.field.show in FLOATS:
        held = floats(column.number, column.field.show).tolist()
    if names := dict(column.field.names):
        held = [names.get(number, number) for number in column.number.tolist()]
    out = objects(held)
    out[column.lost] = None
    return out


def access_columns(source: EventSource, accesses: Accesses) -> Columns:
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
