"""What reports are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.cli.console import lines

if TYPE_CHECKING:
    from ftpatch.check import Check, Finding

__all__ = ["Notes", "Results", "message", "remarks"]

Results = Iterable[tuple[Path, "Check | str"]]
"""Each image with what its check says, or with the reason why it could not be read."""


@dataclass(frozen=True, slots=True)
class Notes:
    """How much to say (``many``: of a tree, of which clean modules are only counted), and ``last``:
    lines for the end, to be asked for when all results are in."""

    quiet: bool = False
    verbose: bool = False
    many: bool = False
    last: Iterable[str] = ()


def message(finding: Finding) -> str:
    """``site-known: 0xffffffff81000044 vfs_write+0x4: ...``."""
    place = f"{finding.ip:#x}" + (f" {finding.symbol}" if finding.symbol else "")
    return f"{finding.invariant}: {place}: {finding.message}"


def remarks(notes: Notes, *, error: bool = True) -> None:
    """Print the lines for the end, beside a report that has no place for them."""
    if not notes.quiet:
        lines((f"ftpatch: {line}" if error else line for line in notes.last), error=error)
