# SPDX-License-Identifier: MIT
"""The screen: views of one recording, and the keys that lead from one to another."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import ContentSwitcher, Footer, Input, Static

from ftpatch.cli.console import clean
from ftpatch.cli.tui.driver import TerminalDriver
from ftpatch.cli.tui.function_table import FunctionTable
from ftpatch.cli.tui.keys import BINDINGS, CSS, KEYS, VIEWS, views_of
from ftpatch.cli.tui.listing import Listing
from ftpatch.cli.tui.outline_table import OutlineTable
from ftpatch.cli.tui.recorded import Recorded, Stopped
from ftpatch.cli.tui.text_table import SourceTable, TextTable
from ftpatch.cli.tui.time_table import TimeTable
from ftpatch.errors import FtpatchError
from ftpatch.io.cleanup import ENDING
from ftpatch.trace.rows import UNKNOWN

__all__ = ["Walk"]

Read = TypeVar("Read")
TICK = 0.2
"""Seconds between two looks at how far a reading has come."""
ABOVE = 3
"""Lines of source to show above a function's first one that has code."""


class Walk(App[int]):
    """A recording to walk through. It ends with the number of the signal that ended it, or 0."""

    ENABLE_COMMAND_PALETTE = False
    TITLE = "ftpatch"
    CSS = CSS
    BINDINGS: ClassVar[list[BindingType]] = BINDINGS

    def __init__(self, recorded: Recorded) -> None:
        plain = bool(os.environ.get("NO_COLOR"))  # else textual turns colours into shades of grey
        super().__init__(driver_class=TerminalDriver, ansi_color=plain)
        self._recorded = recorded
        self._chosen = UNKNOWN
        self._before: list[int] = []
        """Functions that were chosen before this one."""
        self._wanted: NDArray[np.bool_] | None = None
        self._asked = ""
        """What the line at the bottom asks for: ``search`` or ``moment``."""
        self._told: tuple[object, ...] = ()
        """The line that the words below the lists are about."""
        self._functions = FunctionTable(recorded)
        self.failed: Exception | None = None

    def compose(self) -> ComposeResult:
        """All widgets."""
        empty = TextTable()
        yield Static(id="top", markup=False)
        with ContentSwitcher(initial="functions"):
            yield Listing(self._functions, id="functions")
            with Vertical(id="around"):
                yield Listing(empty, id="callers")
                yield Listing(empty, id="callees")
            yield Listing(empty, id="tree")
            yield Listing(empty, id="time")
            yield Listing(empty, id="source")
            yield Listing(empty, id="help")
        yield Static(id="detail", markup=False)
        yield Input(id="ask")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show the functions first; end by signals as every command does, after the terminal is
        what it was."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN and number != signal.SIGPIPE:
                loop.add_signal_handler(number, self._leave, int(number))
        # Behind Ctrl-Z and fg the terminal's other screen is empty.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.query_one("#ask").display = False
        self._listing("functions").show(self._functions)
        lines = [*self._recorded.notes, ""] if self._recorded.notes else []
        self._listing("help").show(TextTable([*lines, *KEYS]))
        self.action_view("functions")
        if self._recorded.notes:
            self._say(f"{self._recorded.notes[0]} (? shows all notes)")

    def action_view(self, name: str) -> None:
        """Show a view; one that has to be read is read first."""
        function = self._function
        if name == "tree":
            self._show_tree(function)
        elif name == "time":
            self._show_time(function)
        elif name == "source":
            self._show_source(function)
        else:
            self._switch(name)

    def action_around(self) -> None:
        """Show the callers and callees of the function at the cursor."""
        function = self._chosen if self._function == UNKNOWN else self._function
        if function != UNKNOWN:
            self._walk_to(function)

    def action_walk_back(self) -> None:
        """Go back to the function that was chosen before."""
        if self._view == "around" and self._before:
            self._chosen = self._before.pop()
            self._show_around(self._chosen)
        else:
            self._switch("functions")

    def action_sort(self) -> None:
        """Order functions by the next column; the cursor stays on its function."""
        function = self._function
        self._functions.by_next()
        self._listing("functions").show(self._functions, self._functions.line_of(function))

    def action_reverse(self) -> None:
        """Turn the order of functions around."""
        function, table = self._function, self._functions
        table.by(table.sort, falling=not table.falling)
        self._listing("functions").show(table, table.line_of(function))

    def action_thread(self, step: int) -> None:
        """Show the next thread's calls around the same moment."""
        listing = self._listing("time")
        if isinstance(listing.table, TimeTable):
            listing.show(*listing.table.other_thread(step, listing.cursor))

    def action_unfold(self, unfold: bool) -> None:
        """Unfold a line, or fold it; of one that is folded already, go to the one around it."""
        listing = self._current
        table = listing.table
        if isinstance(table, OutlineTable) and len(table):
            listing.show(table, table.unfold(listing.cursor, unfold))

    def action_ask(self, what: str) -> None:
        """Ask for a text to search for, or for a moment."""
        ask = self.query_one("#ask", Input)
        self._asked, ask.value, ask.display = what, "", True
        ask.placeholder = "part of a name, or a glob" if what == "search" else "seconds"
        ask.focus()

    def action_found(self, step: int) -> None:
        """Go to the next line that the search matches, or the one before."""
        if self._wanted is None:
            self._say("nothing to look for yet: / searches")
        else:
            self._find(self._wanted, back=step < 0)

    def action_close(self) -> None:
        """Close the line at the bottom."""
        if self._asked:
            self._asked = ""
            self.query_one("#ask").display = False
            self._focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of one view are not keys of another."""
        return self._view in views_of(action, parameters)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take what was asked for."""
        asked, text = self._asked, event.value.strip()
        self.action_close()
        if text and asked == "search":
            self._wanted = self._recorded.matching(text)
            if not self._wanted.any():
                self._say(f"no function matches {text!r}")
                return
            self._find(self._wanted)
        elif text:
            self._go_to(text)

    def on_listing_moved(self) -> None:
        """Tell the whole name of the function at the cursor. What else was said stays until that is
        another line."""
        function = self._function
        line = self._view, self._current.id, self._current.cursor, function
        if line == self._told:
            return
        self._told = line
        if function != UNKNOWN:
            name, place = self._recorded.names[function], self._recorded.place(function)
            self._say(f"{name} ({place})" if place else name)
        else:
            self._say("")

    def on_listing_chosen(self, event: Listing.Chosen) -> None:
        """Walk to the function; a node of the call tree unfolds."""
        listing = event.listing
        if listing.id == "tree" and isinstance(listing.table, OutlineTable):
            self.action_unfold(not listing.table.is_unfolded(listing.cursor))
        elif listing.function != UNKNOWN and listing.id != "source":
            self._walk_to(listing.function)

    def _walk_to(self, function: int) -> None:
        if self._view == "around" and self._chosen not in (UNKNOWN, function):
            self._before.append(self._chosen)
        self._chosen = function
        self._show_around(function)

    @work(exclusive=True, group="read")
    async def _show_around(self, function: int) -> None:
        name = self._recorded.names[function]
        reason = self._recorded.no_tree
        self._switch("around")
        listings = self._listing("callers"), self._listing("callees")
        if reason:
            for listing in listings:
                listing.show(TextTable(message=reason))
            return
        both = await self._read(listings[0], lambda: self._recorded.around(function))
        if both is not None:
            whats = f"Callers of {name}", f"Callees of {name}"
            for listing, outline, what in zip(listings, both, whats, strict=True):
                listing.show(OutlineTable(self._recorded, outline, what))

    @work(exclusive=True, group="read")
    async def _show_tree(self, function: int) -> None:
        listing, reason = self._listing("tree"), self._recorded.no_tree
        self._follow(function)
        self._switch("tree")
        if reason:
            listing.show(TextTable(message=reason))
        elif not isinstance(listing.table, OutlineTable):
            outline = await self._read(listing, self._recorded.call_tree)
            if outline is not None:
                listing.show(OutlineTable(self._recorded, outline, "Call tree"))

    @work(exclusive=True, group="read")
    async def _show_time(self, function: int) -> None:
        listing, reason = self._listing("time"), self._recorded.no_time_line
        there = self._view == "time"
        self._follow(function)
        self._switch("time")
        if reason:
            listing.show(TextTable(message=reason))
            return
        if isinstance(listing.table, TimeTable) and (there or function == UNKNOWN):
            return
        calls = await self._read(listing, self._recorded.time_line)
        if calls is not None:
            call = UNKNOWN if function == UNKNOWN else calls.longest(function)
            thread = 0 if call == UNKNOWN else calls.thread_of(call)
            line = 0 if call == UNKNOWN else call - calls.of(thread).start
            listing.show(TimeTable(self._recorded, calls, thread), line)

    @work(exclusive=True, group="read")
    async def _show_source(self, function: int) -> None:
        listing = self._listing("source")
        self._chosen = function = self._chosen if function == UNKNOWN else function
        self._switch("source")
        if function == UNKNOWN:
            listing.show(TextTable(message="No function is chosen."))
            return
        found = await self._read(listing, lambda: self._recorded.source_of(function))
        name = self._recorded.names[function]
        if isinstance(found, str):
            listing.show(TextTable(head=name, message=found))
        elif found is not None:
            # Scrolled up from the end, the function stands at the top, with what is right above it.
            for line in (len(found.lines) - 1, found.first - ABOVE, found.first):
                listing.show(SourceTable(found, function, name), line)

    async def _read(self, listing: Listing, read: Callable[[], Read]) -> Read | None:
        """What ``read`` returns, from a thread; None after an error, which is told."""

        def told() -> None:
            if self._recorded.done:
                steps = max(self._recorded.source.steps, self._recorded.done)
                listing.show(TextTable(message=f"Reading: {self._recorded.done} of {steps} parts"))

        if not isinstance(listing.table, TextTable):
            listing.show(TextTable(message="Reading"))
        timer = self.set_interval(TICK, told)
        try:
            return await asyncio.to_thread(read)
        except Stopped:
            return None
        except (FtpatchError, OSError) as error:
            listing.show(TextTable(message=clean(str(error))))
            return None
        finally:
            timer.stop()

    def _go_to(self, text: str) -> None:
        """Go to a moment of the time line."""
        listing = self._listing("time")
        if isinstance(listing.table, TimeTable):
            line = listing.table.line_of(text)
            if line is None:
                self._say(f"{text!r} is not a number of seconds")
            else:
                listing.show(listing.table, line)

    def _find(self, wanted: NDArray[np.bool_], *, back: bool = False) -> None:
        if not self._current.find(wanted, back=back):
            self._say("no match in this view")

    def _follow(self, function: int) -> None:
        """Let n find a function's calls, if nothing else was searched for."""
        if function != UNKNOWN:
            self._chosen = function
            if self._wanted is None or not self._wanted[function]:
                self._wanted = np.arange(len(self._recorded.names)) == function

    def _switch(self, view: str) -> None:
        self.query_one(ContentSwitcher).current = view
        self._tell_views()
        self._focus()
        self.refresh_bindings()

    def _focus(self) -> None:
        """Give the keys to the view that is seen."""
        self._current.focus()
        self.on_listing_moved()

    def _tell_views(self) -> None:
        """The title."""
        self.query_one("#top", Static).update(f"{VIEWS[self._view]} | {self._recorded.title}")

    def _say(self, text: str) -> None:
        self.query_one("#detail", Static).update(text)

    def _leave(self, number: int) -> None:
        """End because of a signal."""
        self._recorded.stop()
        self.exit(number)

    def _print_error_renderables(self) -> None:
        """Instead of textual's traceback: whoever runs this tells the error."""
        self.failed = self._exception
        if self._exit_renderables and self.failed is None:
            self.failed = RuntimeError("textual: cannot read keys")
        self._exit_renderables.clear()

    async def action_quit(self) -> None:
        """End."""
        self._leave(0)

    def _listing(self, name: str) -> Listing:
        return self.query_one(f"#{name}", Listing)

    @property
    def _view(self) -> str:
        return self.query_one(ContentSwitcher).current or "functions"

    @property
    def _function(self) -> int:
        """The function at the cursor of the view that is seen, or -1."""
        return self._current.function

    @property
    def _current(self) -> Listing:
        """The list that has the keys, or will have them when nothing is asked for."""
        held, view = self.focused, self._view
        names = ("callers", "callees") if view == "around" else (view,)
        return held if isinstance(held, Listing) and held.id in names else self._listing(names[0])
