"""Events of probes for other tools: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ftpatch.probe.fetched import Seen
from ftpatch.probe.hit_calls import limit_depth
from ftpatch.probe.hits import Hits, read_hits
from ftpatch.trace.address_names import Places
from ftpatch.trace.formats.cells import decimals, hexadecimals, texts
from ftpatch.trace.formats.probe_cells import Part, by_file, rendered, value_cells
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["json_values", "probes_json"]


def probes_json(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str | bytes]:
    """The report, in parts: events by time, and in the end what each probe comes to. Times are
    nanoseconds (ticks, where the clock's rate is not known), addresses strings; decimal values are
    numbers, others strings, what could not be read is null. ``cut`` names the strings that go on
    behind what an event holds, where there are any."""
    del batches, look  # nothing here needs to be fit for a terminal: JSON escapes it
    hits, places = read_hits(trace), Places(trace, str)
    limit_depth(hits)
    pairs = zip(trace.pids, trace.tids, strict=True)
    threads = [f'{{"pid": {pid}, "tid": {tid}, "time": ' for pid, tid in pairs]

    def parts(event: Seen) -> Iterator[Part]:
        probe = event.probe
        yield texts(threads, event.thread)
        yield decimals(event.time)
        function, _ = places.function(event.file, probe)
        told = {"probe": probe.definition.name, "ip": hex(probe.ip), "function": function}
        source = places.source(event.file, probe)
        yield f", {json.dumps(told | ({'source': source} if source else {}))[1:-1]}".encode()
        if probe.returns:
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

    yield from rendered(hits, parts)
    yield from (json.dumps(row) + "\n" for row in _sums(hits))


def json_values(event: Seen, places: Places, *, mark: bytes = b"") -> Iterator[Part]:
    """Names and values of a JSON object."""
    for number, one in enumerate(event.values):
        yield f"{', ' * bool(number)}{json.dumps(one.fetch.name)}: ".encode()
        yield from value_cells(one, event, places, for_json=True, mark=mark)


def _cut(event: Seen) -> Iterator[Part]:
    """Names of cut strings."""
    strings = [one for one in event.values if one.fetch.type == "string" and one.cut.any()]
    if not strings:
        return
    code = np.zeros(len(event.rows), np.int64)
    for bit, one in enumerate(strings):
        code |= one.cut.astype(np.int64) << bit
    distinct, index = np.unique(code, return_inverse=True)
    names = [
        [one.fetch.name for bit, one in enumerate(strings) if value >> bit & 1]
        for value in distinct.tolist()
    ]
    yield texts([f', "cut": {json.dumps(some)}' if some else "" for some in names], index)


def _sums(hits: Hits) -> Iterator[dict[str, Any]]:
    """What each probe of each trace comes to."""
    file = hits.file
    for number, header in enumerate(hits.trace.headers):
        for probe, index in zip(hits.told[number], hits.numbers[number].tolist(), strict=True):
            if index < 0:
                continue
            rows = np.flatnonzero((file == number) & (hits.probe == index))
            row = {"pid": header.pid, "probe": probe.definition.name, "way": probe.way}
            row |= {"hits": len(rows), "missed": probe.missed}
            if probe.returns and len(rows):
                took = hits.time[rows] - hits.begin[rows]
                row |= {"total": int(took.sum()), "avg": int(took.sum()) // len(rows)}
                row |= {"min": int(took.min()), "max": int(took.max())}
            yield row
