# SPDX-License-Identifier: MIT
"""A whole trace in one HTML file: flame graph, table of functions, time line and search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ftpatch.trace.boxes import MAX_LEVELS, Timeline
from ftpatch.trace.extremes import Extremes
from ftpatch.trace.render.flame import flame
from ftpatch.trace.render.page import page
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Page, Report
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import EventSource, Recording
from ftpatch.trace.totals import Summing

__all__ = ["REPORT"]


def _html(source: EventSource, style: Style) -> Iterator[str]:
    recording = source.recording
    sums = Summing(recording.functions, recording.window)
    extremes, timeline = Extremes(recording.window), Timeline(recording.window)

    def seen() -> Iterator[Rows]:
        for rows in style.rows(source):
            sums.add(rows)
            extremes.add(rows)
            timeline.add(rows)
            yield rows

    tree = style.tree(source, seen())
    notes = [*style.notes, *map(style.clean, source.notes())]
    sections = {
        "flame": flame(tree),
        "table": _table(sums, extremes),
        "timeline": _timeline(timeline, recording, style),
    }
    yield from page(recording, style, notes, sections)


def _table(sums: Summing, extremes: Extremes) -> Mapping[str, Any]:
    totals = sums.totals()
    least, most = extremes.of(totals.function)
    return {
        "function": totals.function,
        "calls": totals.hits,
        "total": totals.time,
        "own": totals.own,
        "avg": totals.average,
        "least": least,
        "most": most,
    }


def _timeline(timeline: Timeline, recording: Recording, style: Style) -> Mapping[str, Any]:
    """Boxes of one thread after another, those of one process together."""
    boxes = timeline.boxes()
    process = recording.owner[boxes.thread]
    order = np.lexsort((boxes.begin, boxes.level, boxes.thread, process))
    thread = boxes.thread[order]
    first = np.flatnonzero(np.diff(thread, prepend=-1))
    pids, comms = recording.pids, recording.comms
    return {
        "threads": [
            {"comm": style.clean(comms[i]), "pid": pids[i], "tid": recording.tids[i]}
            for i in thread[first].tolist()
        ],
        "first": first,
        "level": boxes.level[order],
        "begin": boxes.begin[order],
        "length": (boxes.end - boxes.begin)[order],
        "function": boxes.function[order],
        "calls": boxes.calls[order],
        "shorter": timeline.shorter,
        "deeper": timeline.deeper,
        "depth": MAX_LEVELS,
    }


class Html(Page):
    """A page with all views."""

    name = "html"

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _html(source, style)


REPORT: Report = Html()
