# SPDX-License-Identifier: MIT
"""Trace files that have no name yet.

`ftpatch trace` makes them with O_TMPFILE, so that nobody truncates what a program has mapped, and
names them when the program has ended. Until then they are where it holds them:

    /proc/PID/fd/7 -> DIR/#INODE (deleted)         of `ftpatch trace -o DIR/x.trace`
    /proc/PID/fd/7 -> DIR/.x.trace.recording/#INODE (deleted)              with --pid
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from ftpatch.io.under_way import place_of

__all__ = ["Unnamed"]

DELETED = " (deleted)"


class Unnamed:
    """The files that will be called ``trace``, and ``trace``.PID."""

    def __init__(self, trace: Path) -> None:
        """Look for the process that holds them."""
        whole = Path(os.path.abspath(trace))  # noqa: PTH100 - its links are no matter
        self._trace = Path(os.path.realpath(whole.parent)) / whole.name
        self._seen = frozenset[str]()
        processes = (one for one in Path("/proc").iterdir() if one.name.isdigit())
        holders = [one for one in processes if self._held(one)]
        # Others follow them, and have begun later.
        self._holder = min(holders, key=_begun, default=None)

    def new(self) -> list[Path]:
        """Paths by which those can be opened that have come since the last time."""
        if self._holder is None:
            return []
        try:
            names = frozenset(os.listdir(self._holder / "fd"))  # noqa: PTH208 - names alone
        except OSError:  # it has ended: they have names now
            self._holder = None
            return []
        before, self._seen = self._seen, names
        return self._held(self._holder, names - before)

    def forget(self) -> None:
        """Return all of them again next time: one was not ready."""
        self._seen = frozenset()

    def _held(self, process: Path, names: Iterable[str] | None = None) -> list[Path]:
        """The files that a process holds, by descriptors of some ``names``."""
        own = f"{place_of(self._trace).parent}/#"
        shared = f"{self._trace.parent}/#"
        found = list[Path]()
        try:
            every = os.listdir(process / "fd") if names is None else names  # noqa: PTH208
            for path in (process / "fd" / name for name in every):
                with contextlib.suppress(FileNotFoundError):  # closed by now
                    link = str(path.readlink())
                    if link.endswith(DELETED) and (
                        link.startswith(own)
                        or (link.startswith(shared) and self._names_it(process))
                    ):
                        found.append(path)
        except OSError:  # it has ended, or is somebody else's
            return []
        return found

    def _names_it(self, process: Path) -> bool:
        """Test whether a word of a process's command line is the trace."""
        words = (process / "cmdline").read_bytes().split(b"\0")
        folder = Path(os.path.realpath(process / "cwd"))
        return any(
            self._is_trace(folder, os.fsdecode(part))
            for word in words
            for part in (word, word.partition(b"=")[2], word.removeprefix(b"-o"))
            if part
        )

    def _is_trace(self, folder: Path, word: str) -> bool:
        whole = folder / word
        return whole.name == self._trace.name and os.path.realpath(whole.parent) == str(
            self._trace.parent
        )


def _begun(process: Path) -> int:
    """When a process began (clock ticks since the machine did): field 22 of proc_pid_stat(5)."""
    try:
        return int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):  # it has ended
        return sys.maxsize
