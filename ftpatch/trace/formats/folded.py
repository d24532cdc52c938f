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
    last of them spent itself: 0 of what was called last before a crash."""
    tree = style.tree(source)
    # A semicolon separates functions, and Rust has it in the names of arrays.
    names = [name.replace(";", ":") for name in style.names(source.recording.functions)]
    called = [names[number] for number in tree.function.tolist()]
    own = tree.own.tolist()
    within: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parent.tolist()):
        within.setdefault(parent, []).append(node)
    pending = [(-1, 0)]
    stack: list[str] = []
    while pending:
        node, level = pending.pop()
        if node >= 0:
            stack[level - 1 :] = [called[node]]
            if own[node] or node not in within:
                yield f"{';'.join(stack)} {own[node]}\n"
        inner = sorted(within.get(node, ()), key=called.__getitem__, reverse=True)
        pending += [(child, level + 1) for child in inner]


class Folded(Report):
    """Folded stacks."""

    name = "folded"
    shows = Data.CALLS | Data.HITS
    returns = True
    sums = True
    ends = (".folded",)

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        return _folded(source, style)


REPORT: Report = Folded()
