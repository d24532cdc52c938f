# SPDX-License-Identifier: MIT
"""Trace events in JSON, for chrome://tracing, Perfetto and speedscope.

The format is the JSON Array Format's object form: begin and end events, times in microseconds. An
end needs no name by the specification; but speedscope ends a call only by an event of its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.address_names import Places
from ftpatch.trace.arguments import Arguments
from ftpatch.trace.hits import Group, Hits
from ftpatch.trace.order import by_time
from ftpatch.trace.render.cells import decimals, texts
from ftpatch.trace.render.style import Callers, Strings, Style, strings
from ftpatch.trace.render.values import MARK, Part, by_file, json_values, lines_of_hits
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["REPORT"]

PHASES = {
    Kind.ENTER: "B",
    Kind.LEAVE: "E",
    Kind.UNWOUND: "E",
    Kind.POINT: "i",
    Kind.RETURN: "i",
}
"""Begin, end, and instant: of what has no beginning or no end here."""
PARTS = np.array([f".{ns:03}" for ns in range(1000)], object)
"""Nanoseconds behind microseconds."""


def _chrome(source: EventSource, style: Style) -> Iterator[str | bytes]:
    recording, hits = source.recording, source.hits()
    yield '{"displayTimeUnit": "ns", "otherData": '
    yield json.dumps({"notes": list(style.notes)}) + ', "traceEvents": [\n'
    yield ",\n".join(json.dumps(event) for event in _metadata(recording))
    yield from _calls(source, style) if hits is None else _hits(recording, hits)
    yield "]}\n"


def _calls(source: EventSource, style: Style) -> Iterator[str]:
    """Begins and ends of calls."""
    recording = source.recording
    pairs = zip(recording.pids, recording.tids, strict=True)
    threads = np.array([f',\n{{"pid": {pid}, "tid": {tid}, "ts": ' for pid, tid in pairs], object)
    callers, arguments = Callers(recording, str), Arguments(recording)
    for rows in by_time(style.rows(source)):
        rows = recording.window.within(rows)
        if len(rows):
            shown = _args(recording, rows, callers, arguments)
            yield "".join(_lines(recording, rows, threads, shown))
    yield "\n"


def _metadata(recording: Recording) -> Iterator[dict[str, Any]]:
    """Events that name processes and threads."""
    for header in recording.headers:
        args = {"name": header.comm}
        yield {"ph": "M", "pid": header.pid, "tid": 0, "name": "process_name", "args": args}
    for pid, tid, comm in zip(recording.pids, recording.tids, recording.comms, strict=True):
        args = {"name": comm}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": args}


def _lines(recording: Recording, rows: Rows, threads: Strings, args: list[str]) -> list[str]:
    functions = recording.functions

    def what(code: int) -> str:
        function, kind = divmod(code, len(Kind))
        event: dict[str, Any] = {"ph": PHASES[Kind(kind)], "name": functions.name[function]}
        if event["ph"] == "i":
            event["s"] = "t"  # of one thread
        return ", " + json.dumps(event)[1:-1]

    code = rows.function.astype(np.int64) * len(Kind) + rows.kind
    events = strings(code, what).tolist()
    time = np.maximum(rows.time, 0)  # nothing is before the start, but in a damaged trace
    whole, rest = (time // 1000).tolist(), PARTS[time % 1000].tolist()
    table = zip(threads[rows.thread].tolist(), whole, rest, events, args, strict=True)
    return [f"{thread}{us}{ns}{event}{extra}}}" for thread, us, ns, event, extra in table]


def _args(recording: Recording, rows: Rows, known: Callers, arguments: Arguments) -> list[str]:
    """What a viewer shows of an event when it is chosen."""
    out = [""] * len(rows)
    source = np.array([bool(text) for text in recording.functions.source], bool)
    enters = (rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT)
    valued = (rows.flags & Rows.VALUE) > 0
    wanted = (rows.args >= 0) | valued | source[rows.function] & enters
    callers = known.of(rows) if wanted.any() else []
    for i in np.flatnonzero(wanted).tolist():
        shown: dict[str, Any] = {}
        if enters[i] and recording.functions.source[rows.function[i]]:
            shown["source"] = recording.functions.source[rows.function[i]]
        if rows.args[i] >= 0:
            shown["args"] = [hex(value) for value in rows.arguments[rows.args[i]].tolist()]
            named = arguments.data(rows, i)
            if named is not None:
                shown["arguments"] = named
        if valued[i] and enters[i]:
            shown["parent"] = callers[i]
        elif valued[i]:
            shown["value"] = hex(int(rows.value[i]))
        out[i] = f', "args": {json.dumps(shown)}'
    return out


def _hits(recording: Recording, hits: Hits) -> Iterator[str | bytes]:
    """Hits: calls with their durations, others as instants."""
    places = Places(recording, str)
    yield "\n"
    pairs = zip(recording.pids, recording.tids, strict=True)
    threads = [f', {{"pid": {pid}, "tid": {tid}, "ts": ' for pid, tid in pairs]

    def parts(event: Group) -> Iterator[Part]:
        point = event.point
        # Nothing is before the start, but in a child of fork, or in a damaged trace.
        time = np.maximum(event.time, 0)
        begin = np.maximum(event.time - event.duration, 0)
        yield texts(threads, event.thread)
        yield from _microseconds(begin)
        if point.returns:
            yield b', "dur": '
            yield from _microseconds(time - begin)
        told = {"ph": "X"} if point.returns else {"ph": "i", "s": "t"}  # an instant of one thread
        yield f", {json.dumps(told | {'name': point.name})[1:-1]}".encode()
        yield b', "args": {'
        yield from json_values(event, places, mark=MARK)
        yield from _more(event, places)
        yield b"}}"

    yield from lines_of_hits(hits, parts)


def _more(event: Group, places: Places) -> Iterator[Part]:
    """What else a viewer shows of an event when it is chosen."""
    taken = {one.field.name for one in event.values}
    comma = ", " if taken else ""
    if event.point.returns and "caller" not in taken:
        yield f'{comma}"caller": '.encode()
        yield by_file(event, event.caller, places.callers, as_json=True)
        comma = ", "
    source = places.source(event.header, event.point)
    if source and "source" not in taken:
        yield f'{comma}"source": {json.dumps(source)}'.encode()


def _microseconds(ns: NDArray[np.int64]) -> list[Part]:
    return [decimals(ns // 1000), b".", decimals(ns % 1000, least=3)]


class Chrome(Report):
    """Events for chrome://tracing."""

    name = "chrome"
    shows = Data.CALLS | Data.HITS
    ends = (".json", ".jsonl")

    def render(self, source: EventSource, style: Style) -> Iterator[str | bytes]:
        return _chrome(source, style)


REPORT: Report = Chrome()
