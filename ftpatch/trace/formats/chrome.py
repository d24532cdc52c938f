"""Trace events in JSON, for chrome://tracing, Perfetto and speedscope.

The format is the JSON Array Format's object form: begin and end events, times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ftpatch.trace.formats.style import Callers, Look, Strings, strings
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["chrome", "metadata"]

PHASES = {
    Kind.ENTER: "B",
    Kind.LEAVE: "E",
    Kind.LEFT: "E",
    Kind.POINT: "i",
    Kind.RETURN: "i",
}
"""Begin, end, and instant: of what has no beginning or no end here."""
PARTS = np.array([f".{ns:03}" for ns in range(1000)], object)
"""Nanoseconds behind microseconds."""


def chrome(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts."""
    yield '{"displayTimeUnit": "ns", "otherData": '
    yield json.dumps({"notes": list(look.notes)}) + ', "traceEvents": [\n'
    yield ",\n".join(json.dumps(event) for event in metadata(trace))
    pairs = zip(trace.pids, trace.tids, strict=True)
    threads = np.array([f',\n{{"pid": {pid}, "tid": {tid}, "ts": ' for pid, tid in pairs], object)
    callers = Callers(trace, str)
    for rows in by_time(batches):
        rows = trace.window.within(rows)
        if len(rows):
            yield "".join(_lines(trace, rows, threads, callers))
    yield "\n]}\n"


def metadata(trace: Trace) -> Iterator[dict[str, Any]]:
    """Events that name processes and threads."""
    for header in trace.headers:
        args = {"name": header.comm}
        yield {"ph": "M", "pid": header.pid, "tid": 0, "name": "process_name", "args": args}
    for pid, tid, comm in zip(trace.pids, trace.tids, trace.comms, strict=True):
        args = {"name": comm}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": args}


def _lines(trace: Trace, rows: Rows, threads: Strings, callers: Callers) -> list[str]:
    functions = trace.functions

    def what(code: int) -> str:
        function, kind = divmod(code, len(Kind))
        event: dict[str, Any] = {"ph": PHASES[Kind(kind)], "name": functions.name[function]}
        if event["ph"] == "i":
            event["s"] = "t"  # of one thread
        return ", " + json.dumps(event)[1:-1]

    code = rows.function.astype(np.int64) * len(Kind) + rows.kind
    events = strings(code, what).tolist()
    args = _args(trace, rows, callers)
    time = np.maximum(rows.time, 0)  # nothing is before the start, but in a damaged trace
    whole, rest = (time // 1000).tolist(), PARTS[time % 1000].tolist()
    table = zip(threads[rows.thread].tolist(), whole, rest, events, args, strict=True)
    return [f"{thread}{us}{ns}{event}{extra}}}" for thread, us, ns, event, extra in table]


def _args(trace: Trace, rows: Rows, known: Callers) -> list[str]:
    """What a viewer shows of an event when it is chosen."""
    out = [""] * len(rows)
    source = np.array([bool(text) for text in trace.functions.source], bool)
    enters = (rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT)
    valued = (rows.flags & Rows.VALUE) > 0
    wanted = (rows.args >= 0) | valued | source[rows.function] & enters
    callers = known.of(rows) if wanted.any() else []
    for i in np.flatnonzero(wanted).tolist():
        shown: dict[str, Any] = {}
        if enters[i] and trace.functions.source[rows.function[i]]:
            shown["source"] = trace.functions.source[rows.function[i]]
        if rows.args[i] >= 0:
            shown["args"] = [hex(value) for value in rows.arguments[rows.args[i]].tolist()]
        if valued[i] and enters[i]:
            shown["parent"] = callers[i]
        elif valued[i]:
            shown["value"] = hex(int(rows.value[i]))
        out[i] = f', "args": {json.dumps(shown)}'
    return out
