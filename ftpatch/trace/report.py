"""Contract of a report format: one file of formats/ that says REPORT."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from ftpatch.trace.render.style import Style
from ftpatch.trace.source import Data, EventSource

__all__ = ["File", "Part", "Report"]

File = tuple[str, bytes]
"""The name of a file in a folder, and its next bytes."""
Part = str | bytes | File
"""The next part of a report."""


class Report(Protocol):
    """A format. It derives from this, and gives what differs from the values that stand here."""

    name: ClassVar[str]
    """Its name for --format."""
    shows: ClassVar[Data]
    """The data that it can show."""
    text: ClassVar[bool] = False
    """True if it is for people, and tells what is missing itself."""
    binary: ClassVar[bool] = False
    """True if its parts are bytes."""
    folder: ClassVar[bool] = False
    """True if it is several files."""
    page: ClassVar[bool] = False
    """True if it is for a browser."""
    returns: ClassVar[bool] = False
    """True if it needs to know when functions return."""
    sums: ClassVar[bool] = False
    """True if nothing comes before everything is read."""
    ends: ClassVar[tuple[str, ...]] = (".txt",)
    """Endings of the names of such files."""

    def render(self, source: EventSource, style: Style) -> Iterable[Part]:
        """Give the report in parts, as they are read."""
        ...

    @property
    def for_terminal(self) -> bool:
        """True if a terminal has any use for it."""
        return not (self.binary or self.page or self.folder)
