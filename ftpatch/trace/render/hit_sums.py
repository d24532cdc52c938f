# SPDX-License-Identifier: MIT
"""The numbers of each probe's hits and misses, as ftrace's kprobe_profile has them, and how long
they took, added up as they come."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.trace.hits import Hits
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource, Recording

__all__ = ["HitCounts", "HitSums", "hit_sums"]

MAX_IDLE = 20
"""Probes without hits that get a line each."""


class HitCounts:
    """Sums over the hits of each process's points."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._sums: dict[tuple[int, int], tuple[int, int, int, int]] = {}

    def add(self, hits: Hits) -> None:
        """Add some hits."""
        if not len(hits):
            return
        code = self._recording.owner[hits.thread].astype(np.int64) << 32 | hits.point
        order = np.argsort(code, kind="stable")
        took = (hits.time - hits.begin)[order]
        distinct, first, number = np.unique(code[order], return_index=True, return_counts=True)
        reduced = (one.reduceat(took, first) for one in (np.add, np.minimum, np.maximum))
        columns = (column.tolist() for column in (distinct, number, *reduced))
        for which, count, total, least, most in zip(*columns, strict=True):
            key = which >> 32, which & 0xFFFF_FFFF
            had = self._sums.get(key, (0, 0, least, most))
            self._sums[key] = (
                had[0] + count,
                had[1] + total,
                min(had[2], least),
                max(had[3], most),
            )

    def of(self, header: int, point: int) -> tuple[int, int, int, int]:
        """The hits of a header's process, and their total, least and longest duration
        (nanoseconds); zeros if there are none."""
        return self._sums.get((header, point), (0, 0, 0, 0))

    def hits(self, points: int) -> list[int]:
        """The hits of each of ``points`` points, those of all processes."""
        out = [0] * points
        for (_, point), (count, *_) in self._sums.items():
            out[point] += count
        return out


def hit_sums(hits: Hits, sums: HitCounts, style: Style) -> Iterator[str]:
    """The lines of the table; ``sums``: of all the hits. The idle probes of a wildcard are counted,
    where they would hide the others."""
    counts = sums.hits(len(hits.points))
    for table in hits.hists:
        counts[hits.points.index(table.point)] += table.hits
    totals: dict[tuple[str, str], list[int]] = {}
    for point, number in zip(hits.points, counts, strict=True):
        total = totals.setdefault((style.clean(point.name), point.way), [0, 0])
        total[0] += number
        total[1] += point.missed
    idle = sum(not any(total) for total in totals.values())
    if idle > MAX_IDLE:
        totals = {key: total for key, total in totals.items() if any(total)}
    width = max([len("PROBE"), *(len(name) for name, _ in totals)])
    yield f"# {'PROBE':{width}}  WAY   {'HITS':>10}  {'MISSED':>10}\n"
    for (name, way), (hit, missed) in totals.items():
        yield f"# {name:{width}}  {way:4}  {hit:>10}  {missed:>10}\n"
    if idle > MAX_IDLE:
        yield f"# and {idle} probes without hits\n"


class HitSums(Report):
    """The table alone, for a recording that is kept."""

    name = "probes"
    shows = Data.HITS
    text = True
    sums = True

    def render(self, source: EventSource, style: Style) -> Iterator[str | bytes]:
        hits = source.hits()
        assert hits is not None
        sums = HitCounts(source.recording)
        sums.add(hits)
        yield from hit_sums(hits, sums, style)
