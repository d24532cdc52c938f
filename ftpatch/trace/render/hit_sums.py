# SPDX-License-Identifier: MIT
"""The numbers of each probe's hits and misses, as ftrace's kprobe_profile has them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.trace.hits import Hits
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource

__all__ = ["HitSums", "hit_sums"]


def hit_sums(hits: Hits, style: Style) -> Iterator[str]:
    """The lines of the table."""
    counts = np.bincount(hits.point, minlength=len(hits.points)).tolist()
    for table in hits.hists:
        counts[hits.points.index(table.point)] += table.hits
    totals: dict[tuple[str, str], list[int]] = {}
    for point, number in zip(hits.points, counts, strict=True):
        total = totals.setdefault((style.clean(point.name), point.way), [0, 0])
        total[0] += number
        total[1] += point.missed
    width = max([len("PROBE"), *(len(name) for name, _ in totals)])
    yield f"# {'PROBE':{width}}  WAY   {'HITS':>10}  {'MISSED':>10}\n"
    for (name, way), (hit, missed) in totals.items():
        yield f"# {name:{width}}  {way:4}  {hit:>10}  {missed:>10}\n"


class HitSums(Report):
    """The table alone, for a recording that is kept."""

    name = "probes"
    shows = Data.HITS
    text = True
    sums = True

    def render(self, source: EventSource, style: Style) -> Iterator[str | bytes]:
        hits = source.hits()
        assert hits is not None
        yield from hit_sums(hits, style)
