# SPDX-License-Identifier: MIT
"""A report held back until all of its filters have matched: whether they do turns out while the
trace is read, and nothing is to be printed before an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftpatch.trace.report import Part
    from ftpatch.trace.symbolize import Functions
    from ftpatch.trace.window import Window

__all__ = ["HeldBack"]

ROOM = 1 << 22
"""Characters or bytes to hold back. What is longer is not kept: it has to be rendered again."""


class HeldBack:
    """Parts of a report, none of them before every filter of the window has matched."""

    def __init__(self, window: Window, functions: Functions) -> None:
        self._window, self._functions = window, functions
        self.dropped = False
        """True if it was too long to keep; all filters have matched."""

    def parts(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield them. Raises UsageError at the end if a filter has matched nothing."""
        held: list[Part] = []
        size = 0
        waits = True
        for part in parts:
            if waits and not self._window.unmatched(self._functions):
                waits = False
                self.dropped = size > ROOM
                if self.dropped:
                    return
                yield from held
                held.clear()
            if not waits:
                yield part
                continue
            size += len(part)
            if size <= ROOM:
                held.append(part)
        self._window.require_match(self._functions)
        if waits:
            self.dropped = size > ROOM
            if not self.dropped:
                yield from held
