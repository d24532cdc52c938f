# SPDX-License-Identifier: MIT
"""The contract of a report format: one file in formats/ that defines REPORT."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from ftpatch.trace.render.style import Style
from ftpatch.trace.source import Data, EventSource

__all__ = ["File", "Page", "Part", "Report"]

File = tuple[str, bytes]
"""The name of a file in a folder, and its next bytes."""
Part = str | bytes | File
"""The next part of a report."""


class Report(Protocol):
    """A format. Derive from this, and override what differs from these defaults."""

    name: ClassVar[str]
    """Its name for --format."""
    shows: ClassVar[Data]
    """The data it can show."""
    text: ClassVar[bool] = False
    """True if it is for people, and notes itself what is missing."""
    binary: ClassVar[bool] = False
    """True if it yields bytes."""
    folder: ClassVar[bool] = False
    """True if it is several files."""
    page: ClassVar[bool] = False
    """True if it is for a browser."""
    returns: ClassVar[bool] = False
    """True if it needs returns."""
    stacks: ClassVar[bool] = False
    """True if stacks that were recorded with hits do as well."""
    together: ClassVar[bool] = False
    """True if it shows events of several kinds together."""
    sums: ClassVar[bool] = False
    """True if it yields nothing before everything has been read."""
    follows: ClassVar[Data] = Data(0)
    """The data of which it prints a line per event, and so can do it as they come."""
    ends: ClassVar[tuple[str, ...]] = (".txt",)
    """Suffixes of such files' names."""

    def render(self, source: EventSource, style: Style) -> Iterable[Part]:
        """Yield the report in parts, as data is read."""
        ...

    @property
    def for_terminal(self) -> bool:
        """True if it makes sense on a terminal."""
        return not (self.binary or self.page or self.folder)


class Page(Report):
    """One of all calls that a browser shows."""

    shows = Data.CALLS | Data.HITS
    page = True
    returns = True
    sums = True
    ends = (".html", ".htm")
