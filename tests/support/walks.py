# SPDX-License-Identifier: MIT
"""Runs what `report --tui` shows without a terminal: keys in, lines out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from textual.pilot import Pilot
from textual.widgets import ContentSwitcher, Static

from ftpatch.api.report_programs import Programs
from ftpatch.api.report_sources import open_events
from ftpatch.cli.console import clean
from ftpatch.cli.report_walk import recorded
from ftpatch.cli.tui.app import Walk
from ftpatch.cli.tui.listing import Listing
from ftpatch.cli.tui.recorded import Recorded
from ftpatch.trace import Style
from ftpatch.trace.window import Window

__all__ = ["Screen", "opened", "walked"]

Script = Callable[["Screen"], Awaitable[None]]


@contextlib.contextmanager
def opened(
    *paths: Path, image: Path | None = None, window: Window | None = None
) -> Iterator[Recorded]:
    """A recording, as the verb opens it."""
    events = open_events(paths, window or Window(), image=image)
    try:
        programs = Programs(image, tell=lambda _: None)
        events.recording.name_by(programs.of)
        notes = [note for header in events.recording.headers for note in header.notes]
        yield recorded(events, Style(clean, notes))
    finally:
        events.close()


class Screen:
    """A running application."""

    def __init__(self, pilot: Pilot[int], app: Walk) -> None:
        self._pilot, self.app = pilot, app

    async def press(self, *keys: str) -> None:
        """Press keys one after the other, each when what the one before began is done."""
        for key in keys:
            await self._pilot.press(key)
            if len(self.app.workers):
                await self.app.workers.wait_for_complete()
                await self._pilot.pause()

    async def write(self, text: str) -> None:
        """Type a text and Enter."""
        for letter in text:
            await self._pilot.press(letter)
        await self.press("enter")

    async def click(self, selector: str, line: int, times: int = 1) -> None:
        """Click on a line of a list."""
        await self._pilot.click(selector, offset=(5, line), times=times)
        await self.press()
        await self.app.workers.wait_for_complete()
        await self._pilot.pause()

    async def resize(self, width: int, height: int) -> None:
        """Make the terminal another size."""
        await self._pilot.resize_terminal(width, height)
        await self._pilot.pause()

    @property
    def view(self) -> str:
        """The view that is seen."""
        return self.app.query_one(ContentSwitcher).current or ""

    def listing(self, name: str = "") -> Listing:
        """A list of lines: that of the view."""
        return self.app.query_one(f"#{name or self.view}", Listing)

    def lines(self, name: str = "") -> list[str]:
        """What is seen of a list."""
        listing = self.listing(name)
        return [listing.render_line(y).text.rstrip() for y in range(listing.size.height)]

    def every(self, name: str = "", width: int = 200) -> list[str]:
        """All lines of a list, as they are on a wide screen."""
        table = self.listing(name).table
        texts = (table.line(index, width) for index in range(len(table)))
        return ["".join(part for part, _ in pieces).rstrip() for pieces in texts]

    def at_cursor(self, name: str = "") -> str:
        """The line at the cursor."""
        return self.every(name)[self.listing(name).cursor]

    @property
    def detail(self) -> str:
        """What is said below the lists."""
        return str(self.app.query_one("#detail", Static).content)

    @property
    def title(self) -> str:
        """What stands above them."""
        return str(self.app.query_one("#top", Static).content)


def walked(script: Script, held: Recorded, size: tuple[int, int] = (80, 24)) -> Walk:
    """Run a script on a recording's screen."""

    async def run() -> Walk:
        app = Walk(held)
        async with app.run_test(size=size) as pilot:
            screen = Screen(pilot, app)
            await screen.press()
            await pilot.pause()
            await script(screen)
        return app

    return asyncio.run(run())
