"""Events of probes in Chrome's trace event format: what r probes saw as calls with their durations,
others as instants."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.fetched import Seen
from ftpatch.probe.hit_calls import limit_depth
from ftpatch.probe.hits import read_hits
from ftpatch.trace.address_names import Places
from ftpatch.trace.formats.cells import decimals, texts
from ftpatch.trace.formats.chrome import metadata
from ftpatch.trace.formats.probe_cells import MARK, Part, by_file, rendered
from ftpatch.trace.formats.probes_json import json_values
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["probes_chrome"]


def probes_chrome(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str | bytes]:
    """The report, in parts."""
    del batches
    hits, places = read_hits(trace), Places(trace, str)
    limit_depth(hits)
    yield '{"displayTimeUnit": "ns", "otherData": '
    yield json.dumps({"notes": list(look.notes)}) + ', "traceEvents": [\n'
    yield ",\n".join(json.dumps(event) for event in metadata(trace)) + "\n"
    pairs = zip(trace.pids, trace.tids, strict=True)
    threads = [f', {{"pid": {pid}, "tid": {tid}, "ts": ' for pid, tid in pairs]

    def parts(event: Seen) -> Iterator[Part]:
        probe = event.probe
        # Nothing is before the start, but in a child of fork, or in a damaged trace.
        time = np.maximum(event.time, 0)
        begin = np.maximum(event.time - event.duration, 0)
        yield texts(threads, event.thread)
        yield from _microseconds(begin)
        if probe.returns:
            yield b', "dur": '
            yield from _microseconds(time - begin)
        told = {"ph": "X"} if probe.returns else {"ph": "i", "s": "t"}  # an instant of one thread
        yield f", {json.dumps(told | {'name': probe.definition.name})[1:-1]}".encode()
        yield b', "args": {'
        yield from json_values(event, places, mark=MARK)
        yield from _more(event, places)
        yield b"}}"

    yield from rendered(hits, parts)
    yield "]}\n"


def _more(event: Seen, places: Places) -> Iterator[Part]:
    """What else a viewer shows of an event when it is chosen."""
    taken = {one.fetch.name for one in event.values}
    comma = ", " if taken else ""
    if event.probe.returns and "caller" not in taken:
        yield f'{comma}"caller": '.encode()
        yield by_file(event, event.caller, places.callers, as_json=True)
        comma = ", "
    source = places.source(event.file, event.probe)
    if source and "source" not in taken:
        yield f'{comma}"source": {json.dumps(source)}'.encode()


def _microseconds(ns: NDArray[np.int64]) -> list[Part]:
    return [decimals(ns // 1000), b".", decimals(ns % 1000, least=3)]
