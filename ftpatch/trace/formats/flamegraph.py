# SPDX-License-Identifier: MIT
"""A flame graph in one HTML file that can be searched and zoomed, and needs no network."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.trace.render.flame import flame
from ftpatch.trace.render.page import page
from ftpatch.trace.render.style import Style
from ftpatch.trace.report import Page, Report
from ftpatch.trace.source import Data, EventSource

__all__ = ["REPORT"]


class Flamegraph(Page):
    """A flame graph."""

    name = "flamegraph"
    shows = Data.CALLS | Data.HITS | Data.ACCESSES
    stacks = True

    def render(self, source: EventSource, style: Style) -> Iterator[str]:
        tree = style.paths(source)
        notes = [*style.notes, *map(style.clean, source.notes())]
        return page(source.recording, style, notes, {"flame": flame(tree)}, hits=source.has_stacks)


REPORT: Report = Flamegraph()
