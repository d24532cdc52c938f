# SPDX-License-Identifier: MIT
"""One JSON object for each event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from ftpatch.trace.accesses import Accesses
from ftpatch.trace.address_names import Places
from ftpatch.trace.arguments import Arguments
from ftpatch.trace.by_process import totals_of
from ftpatch.trace.hits import Group, Hits, Show
from ftpatch.trace.order import by_time
from ftpatch.trace.render.cells import decimals, hexadecimals, texts
from ftpatch.trace.render.hist_text import hist_objects
from ftpatch.trace.render.style import Callers, Style, strings
from ftpatch.trace.render.values import Part, by_file, json_values, lines_of_hits
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Data, EventSource, Recording
from ftpatch.trace.totals import Totals

__all__ = ["REPORT"]

WORDS = {
    Kind.ENTER: "entry",
    Kind.POINT: "entry",
    Kind.LEAVE: "exit",
    Kind.UNWOUND: "left",
    Kind.RETURN: "exit",
}


def _json_lines(source: EventSource, style: Style) -> Iterator[str | bytes]:
    """Events by time, and in the end what each probe or watch comes to; or sums of functions.

    Times are nanoseconds (ticks, where the clock's rate is not known), addresses strings, other
    values numbers; what is not known, or could not be read, is null.
    """
    recording, hits = source.recording, source.hits()
    sums, accesses = source.sums(), source.accesses()
    if hits is not None:
        yield from _hits(recording, hits)
    elif accesses is not None:
        yield from _accesses(recording, accesses)
    elif sums is not None:
        yield from _sums(source, sums)
    else:
        yield from _calls(source, style)


def _calls(source: EventSource, style: Style) -> Iterator[str]:
    recording = source.recording
    pairs = zip(recording.pids, recording.tids, strict=True)
    threads = np.array([f'{{"pid": {pid}, "tid": {tid}, ' for pid, tid in pairs], object)
    callers, arguments = Callers(recording, str), Arguments(recording)
    for rows in by_time(style.rows(source)):
        rows = recording.window.within(rows)
        if len(rows):
            heads = threads[rows.thread].tolist()
            extras = _extras(rows, callers, arguments)
            yield "".join(_lines(recording, rows, heads, extras))


def _lines(recording: Recording, rows: Rows, heads: list[str], extras: list[str]) -> list[str]:
    functions = recording.functions

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
    duration = np.where(rows.kind == Kind.UNWOUND, -1, rows.duration)
    durations = strings(duration, lambda ns: f', "duration": {ns}' if ns >= 0 else "").tolist()
    columns = (heads, rows.time.tolist(), rows.level.tolist(), events, durations, extras)
    return [
        f'{head}"time": {time}, "depth": {level}, {event}{spent}{extra}}}\n'
        for head, time, level, event, spent, extra in zip(*columns, strict=True)
    ]


def _extras(rows: Rows, known: Callers, arguments: Arguments) -> list[str]:
    out = [""] * len(rows)
    valued = (rows.flags & Rows.VALUE) > 0
    enters = (rows.kind == Kind.ENTER) | (rows.kind == Kind.POINT)
    for i in np.flatnonzero(rows.args >= 0).tolist():
        out[i] = f', "args": {rows.arguments[rows.args[i]].tolist()}'
        named = arguments.data(rows, i)
        if named is not None:
            out[i] += f', "arguments": {json.dumps(named)}'
    for i in np.flatnonzero(valued & ~enters).tolist():
        out[i] += f', "value": {int(rows.value[i])}'
    called = np.flatnonzero(valued & enters).tolist()
    callers = known.of(rows) if called else []
    for i in called:
        out[i] += f', "parent": {json.dumps(callers[i])}, "ip": "{int(rows.value[i]):#x}"'
    return out


def _hits(recording: Recording, hits: Hits) -> Iterator[str | bytes]:
    """``cut`` names the strings that go on behind what an event holds, where there are any."""
    places = Places(recording, str)
    pairs = zip(recording.pids, recording.tids, strict=True)
    threads = [f'{{"pid": {pid}, "tid": {tid}, "time": ' for pid, tid in pairs]

    def parts(event: Group) -> Iterator[Part]:
        point = event.point
        yield texts(threads, event.thread)
        yield decimals(event.time)
        function, _ = places.function(event.header, point)
        told = {"probe": point.name, "ip": hex(point.ip), "function": function}
        place = places.source(event.header, point)
        yield f", {json.dumps(told | ({'source': place} if place else {}))[1:-1]}".encode()
        if point.returns:
            yield b', "caller": '
            yield by_file(event, event.caller, places.callers, as_json=True)
            yield b', "ret_ip": "'
            yield hexadecimals(event.caller)
            yield b'", "duration": '
            yield decimals(event.duration)
        yield b', "values": {'
        yield from json_values(event, places)
        yield b"}"
        yield from _cut(event)
        yield b"}"

    yield from lines_of_hits(hits, parts)
    pids = [header.pid for header in recording.headers]
    yield from (json.dumps(row) + "\n" for row in hist_objects(hits.hists, places, pids))
    yield from (json.dumps(row) + "\n" for row in _hit_sums(recording, hits))


def _cut(event: Group) -> Iterator[Part]:
    """Names of cut strings."""
    strings = [one for one in event.values if one.field.show is Show.STRING and one.cut.any()]
    if not strings:
        return
    code = np.zeros(len(event), np.int64)
    for bit, one in enumerate(strings):
        code |= one.cut.astype(np.int64) << bit
    distinct, index = np.unique(code, return_inverse=True)
    names = [
        [one.field.name for bit, one in enumerate(strings) if value >> bit & 1]
        for value in distinct.tolist()
    ]
    yield texts([f', "cut": {json.dumps(some)}' if some else "" for some in names], index)


def _hit_sums(recording: Recording, hits: Hits) -> Iterator[dict[str, Any]]:
    """What each point of each process comes to."""
    owner = recording.owner[hits.thread]
    for number, header in enumerate(recording.headers):
        for point, index in zip(hits.told[number], hits.numbers[number].tolist(), strict=True):
            if index < 0:
                continue
            rows = np.flatnonzero((owner == number) & (hits.point == index))
            row = {"pid": header.pid, "probe": point.name, "way": point.way}
            mine = (one for one in hits.hists if one.header == number)
            counted = sum(one.hits for one in mine if one.point.name == point.name)
            row |= {"hits": len(rows) + counted, "missed": point.missed}
            if point.returns and len(rows):
                took = hits.time[rows] - hits.begin[rows]
                row |= {"total": int(took.sum()), "avg": int(took.sum()) // len(rows)}
                row |= {"min": int(took.min()), "max": int(took.max())}
            yield row


def _accesses(recording: Recording, accesses: Accesses) -> Iterator[str]:
    """``access`` is ``r``, ``w`` or ``rw``; ``new`` is what was there behind the access, ``old``
    what the one before it had left there."""
    comms, pids, tids = recording.comms, recording.pids, recording.tids
    for access in accesses:
        variable = access.variable
        row: dict[str, Any] = {
            "comm": comms[access.thread],
            "pid": pids[access.thread],
            "tid": tids[access.thread],
            "cpu": access.cpu,
            "time": access.time,
            "watch": variable.line,
            "symbol": variable.symbol,
            "offset": variable.offset,
            "length": variable.length,
            "type": variable.type,
            "access": access.kind or None,
            "ip": None if access.ip is None else hex(access.ip),
            "function": access.place,
            "old": hex(access.before),
            "new": hex(access.after),
        }
        yield json.dumps(row) + "\n"
    for one in accesses.variables:
        row = {"pid": recording.headers[one.header].pid, "watch": one.line, "hits": one.hits}
        row |= {"missed": one.missed, "errno": one.refusal}
        yield json.dumps(row) + "\n"


def _sums(source: EventSource, totals: Totals) -> Iterator[str]:
    """Of several processes each by itself."""
    headers, (_, each) = source.recording.headers, totals_of(source, ())
    for number, one in each.items():
        yield from _functions(source, one, {"pid": headers[number].pid})
    if len(headers) == 1:
        yield from _functions(source, totals, {})


def _functions(source: EventSource, totals: Totals, head: dict[str, object]) -> Iterator[str]:
    functions = source.recording.functions
    for function, hits, time, own in totals.rows():
        row = head | {
            "function": functions.name[function],
            "address": hex(functions.address[function]),
            "hits": hits,
        }
        if source.has_returns:
            row |= {"total": time, "avg": time // max(hits, 1), "self": own}
        if functions.library[function]:
            row["library"] = functions.library[function]
        if functions.source[function]:
            row["source"] = functions.source[function]
        yield json.dumps(row) + "\n"


class JsonLines(Report):
    """JSON lines."""

    name = "json"
    shows = Data.CALLS | Data.SUMS | Data.HITS | Data.ACCESSES
    ends = (".json", ".jsonl")

    def render(self, source: EventSource, style: Style) -> Iterator[str | bytes]:
        return _json_lines(source, style)


REPORT: Report = JsonLines()
