# SPDX-License-Identifier: MIT
"""Histograms of durations: for each function, how many of its calls took how long, in powers of
two, as bpftrace's hist() and bcc's funclatency draw them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.rows import Kind
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]

BOUNDS = 1 << np.arange(63, dtype=np.int64)
"""First durations of the buckets, but for the one that holds durations of 0."""
BUCKETS = len(BOUNDS) + 1
WIDTH = 42
"""Columns of the longest bar; a line has 80."""
UNITS = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))
HEADER = """\
#     Duration                    Hit  Distribution
#     --------                    ---  ------------
"""


def _histogram(source: EventSource, style: Style) -> Iterator[str]:
    """Functions by descending total time; calls that returned, at the time of their return."""
    recording = source.recording
    counts, time = _count(source, style)
    yield from style.header(tracer="histogram")
    yield HEADER
    names, sources = style.names(recording.functions), recording.functions.source
    for function in np.lexsort((np.arange(len(time)), -time)).tolist():
        held = counts[function]
        used = np.flatnonzero(held)
        if not len(used):
            continue
        place = f" ({style.clean(sources[function])})" if sources[function] else ""
        yield f"{names[function]}{place}\n"
        most = int(held.max())
        for bucket in range(int(used[0]), int(used[-1]) + 1):
            hits = int(held[bucket])
            bar = "@" * (-(-hits * WIDTH // most))
            label = _label(bucket, known=recording.has_clock)
            yield f"{label} {hits:>11}  |{bar:<{WIDTH}}|\n"


def _count(source: EventSource, style: Style) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Calls of each function in each bucket, int64[f, BUCKETS], and their time, float64[f]."""
    recording = source.recording
    counts, time = np.zeros((0, BUCKETS), np.int64), np.zeros(0)
    for rows in style.rows(source):
        ended = among(rows.kind, (Kind.LEAVE, Kind.RETURN)) & (rows.duration >= 0)
        ended &= (rows.time >= recording.window.span[0]) & (rows.time <= recording.window.span[1])
        function, duration = rows.function[ended].astype(np.intp), rows.duration[ended]
        more = max(len(recording.functions) - len(time), 0)
        counts, time = np.pad(counts, ((0, more), (0, 0))), np.pad(time, (0, more))
        code = function * BUCKETS + np.searchsorted(BOUNDS, duration, side="right")
        counts += np.bincount(code, minlength=counts.size).reshape(counts.shape)
        time += np.bincount(function, duration, minlength=len(time))
    return counts, time


def _label(bucket: int, *, known: bool) -> str:
    """``1.02 us - 2.05 us``: where a bucket begins, and where the next one does."""
    low = int(BOUNDS[bucket - 1]) if bucket else 0
    return f"{_short(low, known):>9} - {_short(1 << bucket, known):<9}"


def _short(ns: int, known: bool) -> str:
    """Three digits and a unit; all digits, where the clock's rate is not ``known``."""
    if not known:
        return str(ns)
    least, unit = next((one for one in UNITS if ns >= one[0]), UNITS[-1])
    whole = ns // least
    digits = 0 if least == 1 else max(3 - len(str(whole)), 0)
    return f"{ns / least:.{digits}f} {unit}"


class Histogram(Report):
    """Durations of calls."""

    name = "histogram"
    shows = Data.CALLS | Data.HITS
    text = True
    returns = True
    sums = True

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _histogram(source, style)


REPORT: Report = Histogram()
