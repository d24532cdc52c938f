# SPDX-License-Identifier: MIT
"""Parts of reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.cli.console import count, lines, note_lines
from ftpatch.names.demangle import demangled, demangled_place

if TYPE_CHECKING:
    from ftpatch.errors import FtpatchError
    from ftpatch.ftrace.check.check import Check, Finding, Note

__all__ = ["Notes", "Results", "message", "named", "noted", "remarks"]

SHOWN = 5
"""Functions of a note that are named where its sites have no line of their own."""

Results = Iterable[tuple[Path, "Check | FtpatchError"]]
"""Each image with what its check says, or with the reason why it could not be read; a directory
where it has no images, or could not be read."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Verbosity of a report (``many``: of a tree, of which clean modules are only counted), and
    ``last``: lines for the end, to be asked for when all results are in."""

    quiet: bool = False
    verbose: bool = False
    many: bool = False
    last: Iterable[str] = ()


def named(path: Path, check: Check) -> str:
    """Return what a report calls an image: its path, behind the number of its process; a kernel in
    a core by the core's."""
    if check.core is not None:
        return str(check.core)
    return f"{check.pid}: {path}" if check.pid else str(path)


def message(finding: Finding) -> str:
    """``site-known: 0xffffffff81000044 vfs_write+0x4: ...``; without an address, or a function,
    what has none."""
    at = "" if finding.ip is None else hex(finding.ip)
    place = " ".join(filter(None, (at, demangled_place(finding.symbol))))
    return ": ".join(filter(None, (finding.invariant, place, finding.message)))


def noted(note: Note) -> str:
    """``note: 2 sites: record dropped: ...: vfs_read, vfs_write``."""
    names = ", ".join(map(demangled, note.names[:SHOWN]))
    more = len(note.names) - SHOWN
    names += f" and {more} more" if more > 0 else ""
    return f"note: {count(len(note.ip), 'site')}: {note.message}: {names}"


def remarks(notes: Notes, *, error: bool = True) -> None:
    """Print the lines for the end, beside a report that has no place for them."""
    if not notes.quiet:
        (note_lines if error else lines)(notes.last)
