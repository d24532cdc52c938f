"""Events of probes as ftrace prints them (print_kprobe_event in kernel/trace/trace_kprobe.c).

prog-123   0.000104: open: (do_open+0x0/0x40) dfd=3
prog-123   0.000110: open_ret: (main+0x1b/0x60 <- do_open) ret=3 /* 5.912 us */
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ftpatch.probe import format_value
from ftpatch.trace.formats.look import Look
from ftpatch.trace.hits import Hit, Hits, read_hits
from ftpatch.trace.reader import Trace
from ftpatch.trace.rows import Rows

__all__ = ["Places", "probes", "shown"]

HEADER = """\
#           TASK-TID       TIMESTAMP   EVENT
#              | |             |         |
"""


class Places:
    """Names of addresses, as FUNC+OFFSET/SIZE."""

    def __init__(self, trace: Trace, clean: Callable[[str], str]) -> None:
        self._trace, self._clean = trace, clean
        self._known: dict[tuple[int, int, bool], str] = {}

    def linked(self, file: int, address: int, *, call: bool = False) -> str:
        """Of a link address; of one behind a ``call``, whose function it is that calls."""
        key = file, address, call
        if key not in self._known:
            self._known[key] = self._clean(self._name(file, address, call))
        return self._known[key]

    def loaded(self, file: int, address: int, *, call: bool = False) -> str:
        """Of an address in memory."""
        bias = self._trace.headers[file].bias
        name = self.linked(file, (address - bias) % (1 << 64), call=call)
        return hex(address) if name.startswith("0x") else name

    def _name(self, file: int, address: int, call: bool) -> str:
        program = self._trace.functions.programs[self._trace.program[file]]
        at = (address - int(call)) % (1 << 64)
        (name,), start, known = program.lookup(np.array([at], np.uint64))
        if not known[0] or program.image is None:
            return hex(address)
        kallsyms = program.image.kallsyms
        group = kallsyms.groups_of(start)[0]
        size = int(kallsyms.ends[group]) - int(start[0])
        return f"{name}+{address - int(start[0]):#x}/{size:#x}"


def probes(trace: Trace, batches: Iterable[Rows], look: Look) -> Iterator[str]:
    """The report, in parts."""
    del batches
    hits = read_hits(trace)
    yield "# tracer: probes\n#\n"
    yield from (f"# {note}\n" for note in look.notes)
    yield "#\n" if look.notes else ""
    yield HEADER
    places = Places(trace, look.clean)
    comms = [look.clean(comm) for comm in trace.comms]
    tasks = [f"{comm:>16}-{tid:<7} " for comm, tid in zip(comms, trace.tids, strict=True)]
    for hit in hits:
        if trace.window.globs and not trace.window.names_match(hit.probe.definition.name):
            continue
        yield f"{tasks[hit.thread]}{_seconds(hit.time)}: {_event(hit, places, look.clean)}\n"
    yield "#\n"
    yield from _sums(hits, look.clean)


def _event(hit: Hit, places: Places, clean: Callable[[str], str]) -> str:
    definition = hit.probe.definition
    place = places.linked(hit.file, hit.probe.ip)
    if hit.caller is not None:
        function = definition.symbol or hex(hit.probe.ip)
        place = f"{places.loaded(hit.file, hit.caller, call=True)} <- {clean(function)}"
    values = "".join(f" {name}={text}" for name, text in shown(hit, places, clean))
    took = "" if hit.duration is None else f" /* {hit.duration / 1000:.3f} us */"
    return f"{definition.name}: ({place}){values}{took}"


def shown(hit: Hit, places: Places, clean: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    """Names and texts of an event's values."""
    for fetch, value in zip(hit.probe.definition.fetches, hit.values, strict=True):
        if isinstance(value, bytes):
            text = clean(format_value("string", 0, string=value))
        else:
            text = format_value(fetch.type, value, symbol=lambda at: places.loaded(hit.file, at))
        yield fetch.name, text


def _sums(hits: Hits, clean: Callable[[str], str]) -> Iterator[str]:
    """How often each probe was hit, and missed, as kprobe_profile has it."""
    totals: dict[tuple[str, str], list[int]] = {}
    for file, probes_ in enumerate(hits.probes):
        for probe, number in zip(probes_, hits.counts(file), strict=True):
            total = totals.setdefault((probe.definition.name, probe.way), [0, 0])
            total[0] += number
            total[1] += probe.missed
    width = max([len("PROBE"), *(len(name) for name, _ in totals)])
    yield f"# {'PROBE':{width}}  WAY   {'HITS':>10}  {'MISSED':>10}\n"
    for (name, way), (hit, missed) in totals.items():
        yield f"# {clean(name):{width}}  {way:4}  {hit:>10}  {missed:>10}\n"


def _seconds(ns: int) -> str:
    return f"{ns // 10**9:5}.{ns // 1000 % 10**6:06}"
