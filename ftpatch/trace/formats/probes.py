# SPDX-License-Identifier: MIT
"""Events of probes as ftrace prints them (print_kprobe_event in kernel/trace/trace_kprobe.c).

prog-123   0.000104: open: (do_open+0x0/0x40) dfd=3
prog-123   0.000110: open_ret: (main+0x1b/0x60 <- do_open) ret=3 /* 5.912 us */
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.address_names import Places
from ftpatch.trace.hits import Group
from ftpatch.trace.render.cells import Cells, decimals, texts
from ftpatch.trace.render.hist_text import hist_lines
from ftpatch.trace.render.hit_sums import HitCounts, hit_sums
from ftpatch.trace.render.stack_text import stack_lines
from ftpatch.trace.render.style import Style, ThreadTexts
from ftpatch.trace.render.values import Part, hit_parts, lines_of_hits
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]

HEADER = """\
#           TASK-TID       TIMESTAMP   EVENT
#              | |             |         |
"""


def _probes(source: EventSource, style: Style) -> Iterator[str | bytes]:
    hits, recording = source.hits(), source.recording
    assert hits is not None
    yield from style.header(tracer="probes")
    yield HEADER
    places = Places(recording, style.clean, style.shown)
    known, sums = recording.has_clock, HitCounts(recording)

    def tasks() -> list[str]:
        pairs = zip(recording.comms, recording.tids, strict=True)
        return [f"{style.clean(comm):>16}-{tid:<7} " for comm, tid in pairs]

    threads = ThreadTexts(recording, tasks)

    def parts(event: Group) -> Iterator[Part]:
        yield texts(threads.all().tolist(), event.thread)
        yield from _stamp(event.time, known)
        yield b": "
        yield from hit_parts(event, places)
        if event.point.returns:
            yield b" /* "
            yield from _took(event.duration, known)
            yield b" */"
        place = places.source(event.header, event.point)
        yield f" /* {place} */".encode() if place else b""

    for some in hits.parts():
        yield from lines_of_hits(some, parts, lambda event: stack_lines(event, style.shown))
        sums.add(some)
    yield from hist_lines(hits.hists, places, style, known=known)
    yield "#\n"
    yield from hit_sums(hits, sums, style)


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
        return [decimals(ns), texts([" ticks", " tick"], ns == 1)]
    return [decimals(ns // 1000), b".", decimals(ns % 1000, least=3), b" us"]


class Probes(Report):
    """ftrace's probes."""

    name = "probes"
    shows = Data.HITS
    follows = Data.HITS
    text = True

    def render(self, source: EventSource, style: Style) -> Iterator[str | bytes]:
        return _probes(source, style)


REPORT: Report = Probes()
