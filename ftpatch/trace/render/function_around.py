# SPDX-License-Identifier: MIT
"""A report of one function: its callers and its callees, as text."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.names.spelling import Wanted
from ftpatch.trace.around import Around, callees, callers, outermost
from ftpatch.trace.no_match import no_match
from ftpatch.trace.render.style import Style, time_text
from ftpatch.trace.report import Report
from ftpatch.trace.source import Data, EventSource

__all__ = ["FunctionAround"]

HEADER = """\
# Total time         Hit  Function
# ----------         ---  --------
"""
MAX_INDENT = 64
"""Levels to indent; deeper ones stand in the same column."""


class FunctionAround(Report):
    """Callers and callees of the functions that ``wanted`` names."""

    name = "graph"
    shows = Data.CALLS | Data.HITS
    text = True
    returns = True
    sums = True

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        """Raise UsageError if no function in the trace has that name."""
        tree, functions = style.tree(source), source.recording.functions
        chosen = Wanted(self._wanted).match(functions.symbol)
        nodes = outermost(tree, chosen)
        if not len(nodes):
            raise no_match("--graph", self._wanted, functions)
        yield from style.header(tracer="graph")
        what = style.clean(self._wanted)
        yield f"# Callers of {what}: below each function, indented, those that called it\n"
        yield from _tree(callers(tree, nodes), source, style)
        yield f"#\n# Callees of {what}: below each function, indented, those that it called\n"
        yield from _tree(callees(tree, nodes), source, style)


def _tree(around: Around, source: EventSource, style: Style) -> Iterator[str]:
    recording = source.recording
    names, sources = style.names(recording.functions), recording.functions.source
    yield HEADER
    for node, level in around.lines():
        function = int(around.function[node])
        spent = time_text(int(around.time[node]), recording.has_clock)
        place = f" ({style.clean(sources[function])})" if sources[function] else ""
        indent = "  " * min(level, MAX_INDENT)
        yield f"  {spent}{int(around.hits[node]):>10}  {indent}{names[function]}{place}\n"
