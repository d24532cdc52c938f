"""Events of probes for other tools: one JSON object a line, and Chrome's trace event format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ftpatch.trace.formats.look import Look
from ftpatch.trace.formats.probes import Places
from ftpatch.trace.hits import Hit, Hits, read_hits
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["probes_chrome", "probes_json"]


def probes_json(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts: events by time, and in the end what each probe comes to. Times are
    nanoseconds, addresses strings; signed values are numbers, strings that could not be read null.
    """
    del batches, look
    hits, places = read_hits(trace), Places(trace, str)
    for hit in _wanted(trace, hits):
        row: dict[str, Any] = {
            "pid": trace.pids[hit.thread],
            "tid": trace.tids[hit.thread],
            "time": hit.time,
            "probe": hit.probe.definition.name,
            "ip": hex(hit.probe.ip),
        }
        if hit.caller is not None:
            row |= {"caller": places.loaded(hit.file, hit.caller, call=True)}
            row |= {"duration": hit.duration}
        yield json.dumps(row | {"values": _values(hit)}) + "\n"
    for file, probes in enumerate(hits.probes):
        for probe, number in zip(probes, hits.counts(file), strict=True):
            row = {"probe": probe.definition.name, "way": probe.way}
            row |= {"hits": number, "missed": probe.missed}
            yield json.dumps({"pid": trace.headers[file].pid} | row) + "\n"


def probes_chrome(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts: what r probes saw as calls with their durations, others as instants."""
    del batches
    yield '{"displayTimeUnit": "ns", "otherData": '
    yield json.dumps({"notes": list(look.notes)}) + ', "traceEvents": [\n'
    names = ((header.pid, header.comm) for header in trace.headers)
    yield ",\n".join(
        json.dumps(
            {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": comm}}
        )
        for pid, comm in names
    )
    for hit in _wanted(trace, read_hits(trace)):
        event: dict[str, Any] = {
            "ph": "i" if hit.duration is None else "X",
            "pid": trace.pids[hit.thread],
            "tid": trace.tids[hit.thread],
            "ts": (hit.time - (hit.duration or 0)) / 1000,
            "name": hit.probe.definition.name,
            "args": _values(hit),
        }
        if hit.duration is None:
            event["s"] = "t"  # of one thread
        else:
            event["dur"] = hit.duration / 1000
        yield ",\n" + json.dumps(event)
    yield "\n]}\n"


def _wanted(trace: Trace, hits: Hits) -> Iterator[Hit]:
    window = trace.window
    for hit in hits:
        if not window.globs or window.names_match(hit.probe.definition.name):
            yield hit


def _values(hit: Hit) -> dict[str, Any]:
    """By name: numbers as their types say, what is hexadecimal or a symbol as text."""
    out: dict[str, Any] = {}
    for fetch, value in zip(hit.probe.definition.fetches, hit.values, strict=True):
        if isinstance(value, bytes):
            out[fetch.name] = value.decode("utf-8", "backslashreplace")
        elif value is None:
            out[fetch.name] = None
        elif fetch.type[0] in "us" and fetch.type[1:].isdigit():
            bits = int(fetch.type[1:])
            cut = value & (1 << bits) - 1
            out[fetch.name] = cut - (cut >> (bits - 1) << bits) if fetch.type[0] == "s" else cut
        else:
            out[fetch.name] = hex(value)
    return out
