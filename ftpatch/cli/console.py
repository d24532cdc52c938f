# SPDX-License-Identifier: MIT
"""Output: rich on a terminal, plain lines when piped, JSON lines on demand."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ftpatch.errors import Exit, FtpatchError

__all__ = [
    "Errors",
    "clean",
    "count",
    "error_line",
    "json_line",
    "lines",
    "table",
    "tell_linked",
    "tell_links",
    "wait_for",
    "watched",
]

Item = TypeVar("Item")

SHOWN = 10
"""Errors of one kind to report one by one."""
PATIENCE = 1.0
"""Seconds of work before a progress bar appears."""


def clean(text: str) -> str:
    """Text from a file, fit for a terminal: what is not printable is escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def error_line(text: str) -> None:
    """One line on standard error, if there is any place for it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"ftpatch: {clean(text)}\n")
        sys.stderr.flush()


def count(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def tell_links(copy: Any) -> None:  # noqa: ANN401 - anything with target and names
    """Say that a file had other names: a new one took the place of one of them."""
    if copy.names > 1:
        others = "the other keeps" if copy.names == 2 else f"the {copy.names - 1} others keep"
        error_line(f"{copy.target}: it had {copy.names} hard links; {others} the old contents")


def tell_linked(root: Path, number: int) -> None:
    """The same of a tree, in which some may be names of one file."""
    if number:
        had = f"{count(number, 'module')} had hard links"
        error_line(f"{root}: {had}; each file written is now separate from them")


def json_line(value: dict[str, Any]) -> None:
    """One object on its own line."""
    sys.stdout.write(json.dumps(value) + "\n")


def lines(texts: Iterable[str], *, error: bool = False) -> None:
    """Plain lines, with ``error`` on standard error."""
    stream = sys.stderr if error else sys.stdout
    stream.writelines(f"{clean(text)}\n" for text in texts)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | int]], numbers: Iterable[int] = ()
) -> None:
    """A table on a terminal; elsewhere aligned columns under a line of names. Columns whose index
    is in ``numbers`` are aligned to the right."""
    right = set(numbers)
    cells = [[clean(str(cell)) for cell in row] for row in rows]
    if not _terminal():
        _plain(columns, cells, right)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    header = "" if os.environ.get("NO_COLOR") else "table.header"
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style=header)
    for index, name in enumerate(columns):
        justify = "right" if index in right else "left"
        drawn.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for row in cells:
        drawn.add_row(*map(Text, row))
    Console().print(drawn)


def _plain(columns: Sequence[str], cells: list[list[str]], right: set[int]) -> None:
    every = [[name.upper() for name in columns], *cells]
    widths = [max(len(row[i]) for row in every) for i in range(len(columns))]
    for row in every:
        parts = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(parts).rstrip() + "\n")


def _terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def wait_for(what: Any) -> None:  # noqa: ANN401 - anything with copied, size and running()
    """Wait for an output's copy; on a terminal with a progress bar if that takes a while."""
    begun = time.monotonic()
    while what.running() and time.monotonic() - begun < PATIENCE:
        time.sleep(0.01)
    if not what.running() or not sys.stderr.isatty():
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("copying", total=what.size)
        while what.running():
            progress.update(task, completed=what.copied)
            time.sleep(0.05)


def watched(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items; on a terminal with a progress bar of how many came, if that takes a while."""
    begun = time.monotonic()
    if not sys.stderr.isatty():
        yield from items
        return
    progress, task, done = None, None, 0
    try:
        for item in items:
            done += 1
            if progress is None and time.monotonic() - begun > PATIENCE:
                from rich.console import Console
                from rich.progress import MofNCompleteColumn, Progress

                columns = (*Progress.get_default_columns(), MofNCompleteColumn())
                progress = Progress(*columns, console=Console(stderr=True), transient=True)
                task = progress.add_task(what, total=total)
                progress.start()
            if progress is not None and task is not None:
                progress.update(task, completed=done)
            yield item
    finally:
        if progress is not None:
            progress.stop()


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
