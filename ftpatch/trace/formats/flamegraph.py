"""A flame graph in one HTML file that can be searched and zoomed, and needs no network."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.tree import Tree

__all__ = ["flamegraph"]

PAGE = Path(__file__).with_name("flamegraph.html")
NARROWEST = 1 / 20_000
"""Part of the whole that a call must take to be drawn."""
ESCAPED: dict[str, str | int | None] = {c: f"\\u{ord(c):04x}" for c in "<>&"}
"""Characters to escape in JSON in a page: it could end the script."""


def flamegraph(trace: Trace, tree: Tree, look: Look) -> Iterator[str]:
    """The page, in parts."""
    total = tree.totals()
    outermost = tree.parent < 0
    whole = int(total[outermost].sum())
    drawn = np.flatnonzero(total > whole * NARROWEST)  # a node's parent takes no less than it
    place = np.full(len(total) + 1, -1, np.int64)
    place[drawn] = np.arange(len(drawn))
    used, names = np.unique(tree.function[drawn], return_inverse=True)
    known = look.names(trace.functions)
    data = {
        "names": [known[i] for i in used.tolist()],
        "sources": [look.clean(trace.functions.source[i]) for i in used.tolist()],
        "name": names.tolist(),
        "parent": place[tree.parent[drawn]].tolist(),
        "time": total[drawn].tolist(),
        "own": tree.own[drawn].tolist(),
        "hits": tree.hits[drawn].tolist(),
        "whole": whole,
        "left": int(len(total) - len(drawn)),
        "unit": "ns" if trace.has_clock else "ticks",
        "notes": list(look.notes),
    }
    text = json.dumps(data).translate(str.maketrans(ESCAPED))
    before, _, rest = PAGE.read_text("utf-8").partition("/*DATA*/")
    title = html.escape(look.clean(f"{trace.headers[0].comm} {trace.headers[0].pid}"))
    yield before.replace("<!--TITLE-->", title)
    yield text
    yield rest
