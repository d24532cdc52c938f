"""A report format: one file of formats/ that says REPORT."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ftpatch.trace.render.style import Style
from ftpatch.trace.source import Data, EventSource

__all__ = ["File", "Part", "Report"]

File = tuple[str, bytes]
"""The name of a file in a folder, and its next bytes."""
Part = str | bytes | File
"""The next part of a report."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """A format: its ``name``, the data that it ``shows``, and ``render``, which gives it in parts
    as they are read.

    ``text``: whether it is for people, and tells what is missing itself; ``binary``: whether its
    parts are bytes; ``folder``: whether they are of several files; ``returns``: whether it needs to
    know when functions return; ``sums``: whether nothing comes before everything is read; ``page``:
    whether it is for a browser; ``ends``: how names of such files end.
    """

    name: str
    shows: Data
    render: Callable[[EventSource, Style], Iterable[Part]]
    text: bool = False
    binary: bool = False
    folder: bool = False
    returns: bool = False
    sums: bool = False
    page: bool = False
    ends: tuple[str, ...] = (".txt",)

    @property
    def for_terminal(self) -> bool:
        """True if a terminal has any use for it."""
        return not (self.binary or self.page)
