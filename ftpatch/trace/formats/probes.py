"""Events of probes as ftrace prints them (print_kprobe_event in kernel/trace/trace_kprobe.c).

prog-123   0.000104: open: (do_open+0x0/0x40) dfd=3
prog-123   0.000110: open_ret: (main+0x1b/0x60 <- do_open) ret=3 /* 5.912 us */
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.fetched import Seen
from ftpatch.probe.hit_calls import limit_depth
from ftpatch.probe.hits import Hits, read_hits
from ftpatch.trace.address_names import Places
from ftpatch.trace.formats.cells import Cells, decimals, texts
from ftpatch.trace.formats.probe_cells import MARK, Part, by_file, rendered, value_cells
from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["event_parts", "probes", "value_parts"]

HEADER = """\
#           TASK-TID       TIMESTAMP   EVENT
#              | |             |         |
"""


def probes(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str | bytes]:
    """The report, in parts."""
    del batches
    hits = read_hits(trace)
    limit_depth(hits)
    yield "# tracer: probes\n#\n"
    yield from (f"# {note}\n" for note in look.notes)
    yield "#\n" if look.notes else ""
    yield HEADER
    places = Places(trace, look.clean)
    pairs = zip(trace.comms, trace.tids, strict=True)
    tasks = [f"{look.clean(comm):>16}-{tid:<7} " for comm, tid in pairs]

    def parts(event: Seen) -> Iterator[Part]:
        yield texts(tasks, event.thread)
        yield from _stamp(event.time, trace.has_clock)
        yield b": "
        yield from event_parts(event, places, look)
        source = places.source(event.file, event.probe)
        yield f" /* {source} */".encode() if source else b""

    yield from rendered(hits, parts)
    yield "#\n"
    yield from _sums(hits, look)


def event_parts(
    event: Seen, places: Places, look: Look, *, duration: bool = True
) -> Iterator[Part]:
    """An event without its task, time and source."""
    probe, file = event.probe, event.file
    definition, known = probe.definition, event.hits.trace.has_clock
    yield f"{look.clean(definition.name)}: (".encode()
    if probe.returns:
        yield by_file(event, event.caller, places.callers)
        yield f" <- {places.function(file, probe)[0]})".encode()
    else:
        yield f"{places.linked(file, probe.ip)})".encode()
    yield from value_parts(event, places)
    if probe.returns and duration:
        yield b" /* "
        yield from _took(event.duration, known)
        yield b" */"


def value_parts(event: Seen, places: Places) -> Iterator[Part]:
    """Its values, with a blank before each."""
    for one in event.values:
        yield f" {one.fetch.name}=".encode()
        yield from value_cells(one, event, places, for_json=False, mark=MARK)


def _stamp(time: NDArray[np.int64], known: bool) -> list[Part]:
    """Seconds and microseconds, as trace_print_context() has them; ticks where the clock's rate is
    not known. Nothing is before the start, but in a damaged trace."""
    if not known:
        return [decimals(time)]
    time = np.maximum(time, 0)
    seconds = decimals(time // 10**9, width=5)
    return [seconds, b".", decimals(time // 1000 % 10**6, least=6)]


def _took(ns: NDArray[np.int64], known: bool) -> list[Cells | bytes]:
    if not known:
        return [decimals(ns), b" ticks"]
    return [decimals(ns // 1000), b".", decimals(ns % 1000, least=3), b" us"]


def _sums(hits: Hits, look: Look) -> Iterator[str]:
    """How often each probe was hit, and missed, as kprobe_profile has it."""
    counts = np.bincount(hits.probe, minlength=len(hits.probes)).tolist()
    totals: dict[tuple[str, str], list[int]] = {}
    for probe, number in zip(hits.probes, counts, strict=True):
        total = totals.setdefault((look.clean(probe.definition.name), probe.way), [0, 0])
        total[0] += number
        total[1] += probe.missed
    width = max([len("PROBE"), *(len(name) for name, _ in totals)])
    yield f"# {'PROBE':{width}}  WAY   {'HITS':>10}  {'MISSED':>10}\n"
    for (name, way), (hit, missed) in totals.items():
        yield f"# {name:{width}}  {way:4}  {hit:>10}  {missed:>10}\n"
