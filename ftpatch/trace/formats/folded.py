# SPDX-License-Identifier: MIT
"""Folded stacks: one line for each way to a function, as flamegraph.pl and speedscope read them."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]


def _folded(source: EventSource, style: Style) -> Iterator[str]:
    """``main;parse;read 1200``: functions from the outermost inwards, and the nanoseconds that the
    last of them spent itself: 0 of what was called last before a crash. Of stacks that were
    recorded with hits or accesses, their number."""
    tree = style.paths(source)
    # A semicolon separates functions, and Rust has it in the names of arrays.
    names = [name.replace(";", ":") for name in style.names(source.recording.functions)]
    own, callers = tree.own.tolist(), set(tree.parent.tolist())
    for node, stack in tree.stacks(key=names.__getitem__):
        if own[node] or node not in callers:
            yield f"{';'.join(map(names.__getitem__, stack))} {own[node]}\n"


class Folded(Report):
    """Folded stacks."""

    name = "folded"
    shows = Data.CALLS | Data.HITS | Data.ACCESSES
    returns = True
    stacks = True
    sums = True
    ends = (".folded",)

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _folded(source, style)


REPORT: Report = Folded()
