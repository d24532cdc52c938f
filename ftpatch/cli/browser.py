# SPDX-License-Identifier: MIT
"""Reports in the user's browser, as Python's webbrowser finds it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.errors import OutputError, UsageError

if TYPE_CHECKING:
    from ftpatch.trace import Report

__all__ = ["open_in_browser", "require_browser"]


def require_browser(
    written: Sequence[tuple[Report, Path | None]], otherwise: str
) -> list[tuple[Report, Path]]:
    """Return the reports to open: those that are pages, or else JSON. Raises UsageError if there is
    none in a file (``otherwise``: what to do), and if there is no browser."""
    import webbrowser

    files = [(form, path) for form, path in written if path is not None]
    pages = [one for one in files if one[0].page]
    chosen = pages or [one for one in files if ".json" in one[0].ends]
    if not chosen:
        raise UsageError(None, "--open needs an HTML or JSON report in a file", otherwise)
    try:
        webbrowser.get()
    except webbrowser.Error:
        raise UsageError(None, "--open finds no web browser", "name one in BROWSER") from None
    return chosen


def open_in_browser(path: Path) -> None:
    """Open a file. Raises OutputError if no browser starts."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        raise OutputError(path, "written, but no web browser started")
