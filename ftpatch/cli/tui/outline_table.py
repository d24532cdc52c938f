# SPDX-License-Identifier: MIT
"""A call tree, or the callers or callees of a function: lines that unfold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.cli.tui.cells import bar, cut, share, spent
from ftpatch.cli.tui.listing import Piece
from ftpatch.cli.tui.recorded import Recorded
from ftpatch.trace.outline import Outline

__all__ = ["OutlineTable"]

CALLS, TIME, SHARE, BAR = 9, 11, 6, 8
"""Columns of a number, a time, percent and a bar."""
WIDE = 60
"""Columns that there are at least, if shares and bars are shown."""


class OutlineTable:
    """One line for each node that is seen. ``what`` stands above them."""

    def __init__(self, recorded: Recorded, outline: Outline, what: str) -> None:
        self.outline = outline
        self._recorded, self._what = recorded, what
        self._known = recorded.recording.has_clock
        self._whole = outline.whole
        self.message = "No calls were recorded."
        if len(outline) == 1:
            outline.unfold(0)

    def __len__(self) -> int:
        return len(self.outline)

    def heads(self, width: int) -> list[str]:
        """A title, and names of the columns."""
        numbers = f"{'Total':>{TIME}} {'Calls':>{CALLS}} "
        if width >= WIDE:
            numbers += f"{'Share':>{SHARE}} {'':{BAR}} "
        return [cut(self._what, width), f"{numbers}  Function"]

    def line(self, index: int, width: int) -> list[Piece]:
        """Numbers and name of a node, indented by its level."""
        outline = self.outline
        node = int(outline.shown[index])
        time = int(outline.time[node])
        numbers = f"{spent(time, self._known):>{TIME}} {int(outline.hits[node]):>{CALLS}} "
        part = drawn = ""
        if width >= WIDE:
            part = f"{share(time, self._whole):>{SHARE}} "
            drawn = bar(time, self._whole, BAR) + " "
        room = width - len(numbers) - len(part) - len(drawn)
        mark = " "
        if outline.children(node):
            mark = "▾" if outline.is_unfolded(node) else "▸"
        indent = " " * min(2 * int(outline.level[node]), max(room // 2, 0))
        name = self._recorded.names[int(outline.function[node])]
        shown = cut(f"{indent}{mark} {name}", room)
        return [(numbers + part, ""), (drawn, "cyan"), (shown, "")]

    def function(self, index: int) -> int:
        """The function of a line."""
        return int(self.outline.function[self.outline.shown[index]])

    def is_unfolded(self, line: int) -> bool:
        """Return whether what is inside the node of a line is seen."""
        return self.outline.is_unfolded(int(self.outline.shown[line]))

    def unfold(self, line: int, unfold: bool) -> int:
        """Unfold a line, or fold it; the line to go to, which for one that is folded already is the
        one around it."""
        if unfold:
            self.outline.unfold(line)
        elif self.is_unfolded(line):
            self.outline.fold(line)
        else:
            return self.outline.outer_line(line)
        return line

    def next(self, index: int, chosen: NDArray[np.bool_], *, back: bool = False) -> int | None:
        """The next line about chosen functions, which unfolds what it is in."""
        return self.outline.next(index, chosen, back=back)
