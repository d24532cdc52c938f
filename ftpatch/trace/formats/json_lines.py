# SPDX-License-Identifier: MIT
"""One JSON object for each event."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.accesses import Access, Accesses
from ftpatch.trace.address_names import Places
from ftpatch.trace.arguments import Arguments
from ftpatch.trace.by_process import totals_of
from ftpatch.trace.hits import Group, Hits, Show
from ftpatch.trace.instants import Instants
from ftpatch.trace.losses import REASONS
from ftpatch.trace.order import by_time
from ftpatch.trace.render.cells import decimals, hexadecimals, texts
from ftpatch.trace.render.hist_text import hist_objects
from ftpatch.trace.render.hit_sums import HitCounts
from ftpatch.trace.render.stack_text import stack_cells, stack_members
from ftpatch.trace.render.style import Callers, Style, ThreadTexts, strings
from ftpatch.trace.render.values import Part, by_file, json_values, lines_of_hits
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.several_kinds import Together
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
    """Events by time, and in the end what each probe or watch comes to, and what each thread lost,
    if it did; or sums of functions.

    Times are nanoseconds (ticks, where the clock's rate is not known), addresses strings, other
    values numbers; what is not known, or could not be read, is null.
    """
    recording, hits = source.recording, source.hits()
    sums, accesses = source.sums(), source.accesses()
    if isinstance(source, Together):
        yield from _calls(source, style, _Instants(source))
        yield from _ends(source)
    elif hits is not None:
        yield from _hits(recording, hits)
    elif accesses is not None:
        yield from _accesses(recording, accesses)
    elif sums is not None:
        yield from _sums(source, sums)
    else:
        yield from _calls(source, style)
    yield from _losses(recording)


def _losses(recording: Recording) -> Iterator[str]:
    """``tid`` is null for threads that nothing more is known of; ``lost``: numbers of events by
    reason."""
    for header in recording.headers:
        for one in header.losses:
            lost = {
                REASONS.get(kind, "other"): count for kind, count in enumerate(one.lost) if count
            }
            row = {"pid": header.pid, "tid": one.tid, "lost": lost, "overwritten": one.overwritten}
            yield json.dumps(row) + "\n"


def _calls(source: EventSource, style: Style, instants: _Instants | None = None) -> Iterator[str]:
    recording = source.recording
    threads = ThreadTexts(recording, lambda: _beginnings(recording))
    callers, arguments = Callers(recording, str), Arguments(recording)
    batches = style.rows(source)
    for rows in by_time(batches if instants is None else instants.among(batches)):
        rows = recording.window.within(rows)
        if instants is not None:
            yield from _mixed(recording, rows, threads, callers, arguments, instants)
        elif len(rows):
            heads = threads.of(rows.thread).tolist()
            extras = _extras(rows, callers, arguments)
            yield "".join(_lines(recording, rows, heads, extras))


def _mixed(
    recording: Recording,
    rows: Rows,
    threads: ThreadTexts,
    callers: Callers,
    arguments: Arguments,
    instants: _Instants,
) -> Iterator[str]:
    """Rows of calls, and instants among them."""
    others = (rows.flags & Rows.INSTANT) > 0
    out = np.empty(len(rows), object)
    calls = rows.take(~others)
    if len(calls):
        heads = threads.of(calls.thread).tolist()
        extras = _extras(calls, callers, arguments)
        out[~others] = np.array(_lines(recording, calls, heads, extras), object)
    for row, line in zip(np.flatnonzero(others), instants.lines(rows.value[others]), strict=True):
        out[row] = line + "\n"
    yield "".join(out.tolist())


def _beginnings(recording: Recording) -> list[str]:
    """What the objects of each thread begin with."""
    pairs = zip(recording.pids, recording.tids, strict=True)
    return [f'{{"pid": {pid}, "tid": {tid}, ' for pid, tid in pairs]


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
    places, sums = Places(recording, str), HitCounts(recording)
    parts = _hit_parts(recording, places)
    for some in hits.parts():
        yield from lines_of_hits(some, parts)
        sums.add(some)
    yield from _hit_ends(recording, hits, places, sums)


def _hit_ends(recording: Recording, hits: Hits, places: Places, sums: HitCounts) -> Iterator[str]:
    """What is told of hits in the end."""
    pids = [header.pid for header in recording.headers]
    yield from (json.dumps(row) + "\n" for row in hist_objects(hits.hists, places, pids))
    yield from (json.dumps(row) + "\n" for row in _hit_sums(recording, hits, sums))


def _hit_parts(recording: Recording, places: Places) -> Callable[[Group], Iterator[Part]]:
    threads = ThreadTexts(recording, lambda: _beginnings(recording))

    def parts(event: Group) -> Iterator[Part]:
        point = event.point
        yield texts(threads.all().tolist(), event.thread)
        yield b'"time": '
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
        if event.stack is not None:
            yield stack_cells(event)
        yield b"}"

    return parts


class _Instants(Instants):
    """Hits and accesses among calls, each as it is where there are no others."""

    def __init__(self, source: EventSource) -> None:
        super().__init__(source)
        self._recording = source.recording
        self._parts = _hit_parts(self._recording, Places(self._recording, str))
        self._told = source.accesses()
        self._stacks: dict[int, dict[str, Any]] = {}

    def lines(self, numbers: NDArray[np.integer]) -> list[str]:
        """The objects of some of them."""
        return self.texts(numbers, self._parts, self._one)

    def _one(self, access: Access) -> str:
        assert self._told is not None
        return _access(self._recording, access, self._told, self._stacks)


def _ends(source: EventSource) -> Iterator[str]:
    """What is told in the end of hits and of accesses."""
    recording, hits, accesses = source.recording, source.hits(), source.accesses()
    if hits is not None:
        sums = HitCounts(recording)
        for some in hits.parts():
            sums.add(some)
        yield from _hit_ends(recording, hits, Places(recording, str), sums)
    if accesses is not None:
        yield from _access_ends(recording, accesses)


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


def _hit_sums(recording: Recording, hits: Hits, sums: HitCounts) -> Iterator[dict[str, Any]]:
    """What each point of each process comes to."""
    for number, header in enumerate(recording.headers):
        for point, index in zip(hits.told[number], hits.numbers[number].tolist(), strict=True):
            if index < 0:
                continue
            row = {"pid": header.pid, "probe": point.name, "way": point.way}
            mine = (one for one in hits.hists if one.header == number)
            counted = sum(one.hits for one in mine if one.point.name == point.name)
            count, total, least, most = sums.of(number, index)
            row |= {"hits": count + counted, "missed": point.missed}
            if point.returns and count:
                row |= {"total": total, "avg": total // count, "min": least, "max": most}
            yield row


def _accesses(recording: Recording, accesses: Accesses) -> Iterator[str]:
    """``access`` is ``r``, ``w`` or ``rw``; ``new`` is what was there behind the access, ``old``
    what the one before it had left there."""
    stacks: dict[int, dict[str, Any]] = {}
    for access in accesses:
        yield _access(recording, access, accesses, stacks) + "\n"
    yield from _access_ends(recording, accesses)


def _access(
    recording: Recording, access: Access, accesses: Accesses, stacks: dict[int, dict[str, Any]]
) -> str:
    """``stacks``: those that were told already, by number."""
    variable, thread = access.variable, access.thread
    row: dict[str, Any] = {
        "comm": recording.comms[thread],
        "pid": recording.pids[thread],
        "tid": recording.tids[thread],
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
    if access.stack is not None:
        assert accesses.stacks is not None
        if access.stack not in stacks:
            stacks[access.stack] = stack_members(accesses.stacks, access.stack)
        row |= stacks[access.stack]
    return json.dumps(row)


def _access_ends(recording: Recording, accesses: Accesses) -> Iterator[str]:
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
    follows = Data.CALLS | Data.HITS | Data.ACCESSES
    together = True
    ends = (".json", ".jsonl")

    def render(self, source: EventSource, style: Style) -> Iterator[str | bytes]:
        return _json_lines(source, style)


REPORT: Report = JsonLines()
