# SPDX-License-Identifier: MIT
"""A flame graph in one HTML file that can be searched and zoomed, and needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.names.short_names import short_name
from ftpatch.trace.call_tree import Tree
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]

PAGE = Path(__file__).with_name("flamegraph.html")
MIN_SHARE = 1 / 20_000
"""Share of the whole time that a call must take to be drawn."""
ESCAPED: dict[str, str | int | None] = {c: f"\\u{ord(c):04x}" for c in "<>&"}
"""Characters to escape in JSON in a page: it could end the script."""


def _flamegraph(source: EventSource, style: Style) -> Iterator[str]:
    tree, recording = style.tree(source), source.recording
    total = tree.totals()
    outermost = tree.parent < 0
    whole = int(total[outermost].sum())
    drawn = np.flatnonzero(total > whole * MIN_SHARE)  # a node's parent takes no less than it
    place = np.full(len(total) + 1, -1, np.int64)
    place[drawn] = np.arange(len(drawn))
    left = _left(tree, drawn)
    used, names = np.unique(tree.function[drawn], return_inverse=True)
    known = style.names(recording.functions)
    data = {
        "names": [known[i] for i in used.tolist()],
        "labels": [short_name(known[i]) for i in used.tolist()],
        "sources": [style.clean(recording.functions.source[i]) for i in used.tolist()],
        "name": names.tolist(),
        "parent": place[tree.parent[drawn]].tolist(),
        "time": total[drawn].tolist(),
        "own": tree.own[drawn].tolist(),
        "hits": tree.hits[drawn].tolist(),
        "whole": whole,
        "left": left[:-1].tolist(),
        "outside": int(left[-1]),
        "unit": "ns" if recording.has_clock else "ticks",
        "notes": list(style.notes),
    }
    text = json.dumps(data).translate(str.maketrans(ESCAPED))
    before, _, rest = PAGE.read_text("utf-8").partition("/*DATA*/")
    origin = recording.headers[0]
    title = html.escape(style.clean(f"{origin.comm} {origin.pid}"))
    yield before.replace("<!--TITLE-->", title)
    yield text
    yield rest


def _left(tree: Tree, drawn: NDArray[np.intp]) -> NDArray[np.int64]:
    """How many nodes within each drawn one are not drawn, nor within another that is; the last
    number is of those within none."""
    count = len(tree.parent)
    above = np.append(np.where(tree.parent < 0, count, tree.parent), count)
    above[drawn] = drawn
    while not np.array_equal(above, above[above]):
        above = above[above]
    inside = np.bincount(above[:count], minlength=count + 1)
    return np.append(inside[drawn] - 1, inside[count])


class Flamegraph(Report):
    """A flame graph."""

    name = "flamegraph"
    shows = Data.CALLS | Data.HITS
    returns = True
    sums = True
    page = True
    ends = (".html", ".htm")

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _flamegraph(source, style)


REPORT: Report = Flamegraph()
