# SPDX-License-Identifier: MIT
"""A widget of lines that are made when they are seen: millions of them cost nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

if TYPE_CHECKING:
    from textual.events import Click, Resize

__all__ = ["Listing", "Piece", "Table"]

Piece = tuple[str, str]
"""Text, and its style in rich's words."""


class Table(Protocol):
    """Lines to show. ``message`` stands in their place where there are none."""

    message: str

    def __len__(self) -> int: ...

    def heads(self, width: int) -> list[str]:
        """Lines that stay at the top."""
        ...

    def line(self, index: int, width: int) -> list[Piece]:
        """One line."""
        ...

    def function(self, index: int) -> int:
        """The function that a line is about, or -1."""
        ...

    def next(self, index: int, chosen: NDArray[np.bool_], *, back: bool = False) -> int | None:
        """The next line about chosen functions, bool[f]; behind the last comes the first."""
        ...


class Listing(ScrollView, can_focus=True):
    """A table with a cursor."""

    DEFAULT_CSS = "Listing { overflow-x: hidden; height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(-1)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("enter", "choose", show=False),
    ]
    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        """The cursor is on another line, or the lines are others."""

    class Chosen(Message):
        """A line was chosen."""

        def __init__(self, listing: Listing) -> None:
            self.listing = listing
            super().__init__()

    def __init__(self, table: Table, *, id: str) -> None:
        super().__init__(id=id)
        self.table = table

    def show(self, table: Table, cursor: int = 0) -> None:
        """Show another table, or the same one after it changed."""
        self.table = table
        heads = len(table.heads(80))
        self.virtual_size = Size(0, len(table) + heads)
        self.set_reactive(Listing.cursor, max(0, min(cursor, len(table) - 1)))
        self._follow()

    @property
    def function(self) -> int:
        """The function at the cursor, or -1."""
        return self.table.function(self.cursor) if len(self.table) else -1

    def find(self, chosen: NDArray[np.bool_], *, back: bool = False) -> bool:
        """Go to the next line about chosen functions. False if there is none."""
        found = self.table.next(self.cursor, chosen, back=back) if len(self.table) else None
        if found is None:
            return False
        self.show(self.table, found)
        return True

    def validate_cursor(self, cursor: int) -> int:
        """Keep it on a line."""
        return max(0, min(cursor, len(self.table) - 1))

    def watch_cursor(self) -> None:
        """Scroll to it."""
        if self.is_mounted:
            self._follow()

    def action_move(self, step: int) -> None:
        """Go up or down."""
        self.cursor += step

    def action_page(self, step: int) -> None:
        """Go up or down by what is seen."""
        self.cursor += step * max(self._room, 1)

    def action_end(self, step: int) -> None:
        """Go to the first or the last line."""
        self.cursor = 0 if step < 0 else len(self.table) - 1

    def action_choose(self) -> None:
        """Choose the line."""
        if len(self.table):
            self.post_message(self.Chosen(self))

    def on_click(self, event: Click) -> None:
        """Go to a line; choose it at the second click."""
        width = self.size.width
        line = event.y + self.scroll_offset.y - len(self.table.heads(width))
        if event.y >= len(self.table.heads(width)) and line < len(self.table):
            self.cursor = line
            if event.chain == 2:
                self.action_choose()

    def on_resize(self, event: Resize) -> None:
        """Keep the cursor in sight."""
        self._follow()

    def render_line(self, y: int) -> Strip:
        """Make one line of what is seen."""
        width = self.size.width
        heads = self.table.heads(width)
        if y < len(heads):
            return self._drawn([(heads[y], "bold")])
        if not len(self.table):
            return self._drawn([(self.table.message if y == len(heads) else "", "")])
        index = self.scroll_offset.y + y - len(heads)
        if index >= len(self.table):
            return self._drawn([])
        cursor = "reverse" if self.has_focus else "underline"
        over = cursor if index == self.cursor else ""
        return self._drawn(self.table.line(index, width), over)

    def _drawn(self, pieces: list[Piece], over: str = "") -> Strip:
        """Pieces on a whole line, ``over`` whose styles lies another."""
        from rich.segment import Segment
        from rich.style import Style

        base = self.rich_style + Style.parse(over)
        # At the cursor, a bar in its own colour would be as wide as the room for it.
        styles = ("" if over else style for _, style in pieces)
        segments = [
            Segment(text, base + Style.parse(style))
            for (text, _), style in zip(pieces, styles, strict=True)
        ]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    @property
    def _room(self) -> int:
        """Number of lines that are seen."""
        return self.size.height - len(self.table.heads(self.size.width))

    def _follow(self) -> None:
        top, room = self.scroll_offset.y, self._room
        if room > 0:
            first = min(max(top, self.cursor - room + 1), self.cursor)
            if first != top:
                self.scroll_to(y=first, animate=False, immediate=True, force=True)
        self.refresh()
        self.post_message(self.Moved())
