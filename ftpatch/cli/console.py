# SPDX-License-Identifier: MIT
"""Output: lines, JSON lines, and what is said on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ftpatch.cli.paint import Line, Tone, Word, clean, is_coloured, painted
from ftpatch.cli.progress import room_on, wait_for, watched
from ftpatch.cli.tables import table
from ftpatch.errors import Exit, FtpatchError

__all__ = [
    "Errors",
    "clean",
    "count",
    "document",
    "error_line",
    "json_line",
    "lines",
    "note_lines",
    "table",
    "tell_linked",
    "tell_links",
    "wait_for",
    "warn_line",
    "watched",
]

SHOWN = 10
"""Errors of one kind to report one by one."""


def error_line(text: str) -> None:
    """One line on standard error, if there is any place for it."""
    _say(text, Tone.BAD)


def warn_line(text: str) -> None:
    """The same of what is no error."""
    _say(text, Tone.WARN)


def note_lines(texts: Iterable[str]) -> None:
    """Remarks on a result, on standard error."""
    for text in texts:
        _say(text, None)


def _say(text: str, tone: Tone | None) -> None:
    name = "ftpatch:" if tone is None else Word("ftpatch:", tone)
    colours = is_coloured(sys.stderr)
    with contextlib.suppress(OSError), room_on(sys.stderr):
        sys.stderr.write(f"{painted((name, f' {text}'), colours=colours)}\n")
        sys.stderr.flush()


def count(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def tell_links(copy: Any) -> None:  # noqa: ANN401 - anything with target and names
    """Say that a file had other names: a new one took the place of one of them."""
    if copy.names > 1:
        others = "the other keeps" if copy.names == 2 else f"the {copy.names - 1} others keep"
        warn_line(f"{copy.target}: it had {copy.names} hard links; {others} the old contents")


def tell_linked(root: Path, number: int) -> None:
    """The same of a tree, in which some may be names of one file."""
    if number:
        had = f"{count(number, 'module')} had hard links"
        warn_line(f"{root}: {had}; each file written is now separate from them")


def json_line(value: dict[str, Any]) -> None:
    """One object on its own line."""
    document(json.dumps(value) + "\n")


def document(text: str) -> None:
    """Text for other programs, as it is."""
    with room_on(sys.stdout):
        sys.stdout.write(text)


def lines(texts: Iterable[Line], *, error: bool = False) -> None:
    """Plain lines, with ``error`` on standard error."""
    stream = sys.stderr if error else sys.stdout
    colours = is_coloured(stream)
    for text in texts:
        with room_on(stream):
            stream.write(f"{painted(text, colours=colours)}\n")


class Errors:
    """Errors of a run: the first few of each kind are printed as they come, the others counted."""

    def __init__(self) -> None:
        self.code = Exit.DONE
        self._reasons: Counter[str] = Counter()

    @property
    def number(self) -> int:
        """Number of errors."""
        return sum(self._reasons.values())

    def tell(self, error: FtpatchError) -> None:
        """One more."""
        self.code = max(self.code, error.exit)
        self._reasons[error.reason] += 1
        if self._reasons[error.reason] <= SHOWN:
            error_line(str(error))

    def end(self) -> None:
        """Say how many were not told."""
        for reason, number in self._reasons.items():
            if number > SHOWN:
                error_line(f"... and {number - SHOWN} more: {reason}")
