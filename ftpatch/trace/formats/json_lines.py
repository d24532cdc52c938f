"""One JSON object for each event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ftpatch.trace.formats.style import Callers, Look, strings
from ftpatch.trace.order import by_time
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Kind, Rows

__all__ = ["json_lines"]

WORDS = {
    Kind.ENTER: "entry",
    Kind.POINT: "entry",
    Kind.LEAVE: "exit",
    Kind.LEFT: "left",
    Kind.RETURN: "exit",
}


def json_lines(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts. Times are nanoseconds (ticks, where the clock's rate is not known),
    addresses strings, arguments and values numbers."""
    del look  # nothing here needs to be fit for a terminal: JSON escapes it
    pairs = zip(trace.pids, trace.tids, strict=True)
    threads = np.array([f'{{"pid": {pid}, "tid": {tid}, ' for pid, tid in pairs], object)
    callers = Callers(trace, str)
    for rows in by_time(batches):
        rows = trace.window.within(rows)
        if len(rows):
            yield "".join(_lines(trace, rows, threads[rows.thread].tolist(), callers))


def _lines(trace: Trace, rows: Rows, heads: list[str], callers: Callers) -> list[str]:
    functions = trace.functions

    def what(code: int) -> str:
        function, kind = divmod(code, len(Kind))
        value: dict[str, Any] = {
            "event": WORDS[Kind(kind)],
            "function": functions.name[function],
            "address": hex(functions.address[function]),
        }
        if functions.library[function]:
            value["library"] = functions.library[function]
        if functions.source[function]:
            value["source"] = functions.source[function]
        return json.dumps(value)[1:-1]

    code = rows.function.astype(np.int64) * len(Kind) + rows.kind
    events = strings(code, what).tolist()
    duration = np.where(rows.kind == Kind.LEFT, -1, rows.duration)
    durations = strings(duration, lambda ns: f', "duration": {ns}' if ns >= 0 else "").tolist()
    extras = _extras(rows, callers)
    columns = (heads, rows.time.tolist(), rows.level.tolist(), events, durations, extras)
    return [
        f'{head}"time": {time}, "depth": {level}, {event}{spent}{extra}}}\n'
        for head, time, level, event, spent, extra in zip(*columns, strict=True)
    ]


def _extras(rows: Rows, known: Callers) -> list[str]:
    out = [""] * len(rows)
    valued = (rows.flags & Rows.VALUE) > 0
    enters = (rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT)
    for i in np.flatnonzero(rows.args >= 0).tolist():
        out[i] = f', "args": {rows.arguments[rows.args[i]].tolist()}'
    for i in np.flatnonzero(valued & ~enters).tolist():
        out[i] += f', "value": {int(rows.value[i])}'
    called = np.flatnonzero(valued & enters).tolist()
    callers = known.of(rows) if called else []
    for i in called:
        out[i] += f', "parent": {json.dumps(callers[i])}, "ip": "{int(rows.value[i]):#x}"'
    return out
