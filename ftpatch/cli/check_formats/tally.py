# SPDX-License-Identifier: MIT
"""Numbers of images and of findings: the last line of a report, or the only one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ftpatch.cli.console import count
from ftpatch.cli.paint import Line, bad, fine, joined, warn
from ftpatch.errors import FtpatchError, NoImages

if TYPE_CHECKING:
    from ftpatch.ftrace.check.check import Check

__all__ = ["Tally"]


class Tally:
    """Numbers of images, and of those with findings."""

    def __init__(self) -> None:
        self.images = self.unreadable = 0
        self._empty = self._bare = self._checked = self._found = self._known = 0

    def add(self, path: Path, outcome: Check | FtpatchError) -> None:
        """Count one image; ``path`` is a directory where that has none, or cannot be read."""
        if isinstance(outcome, FtpatchError):
            empty = isinstance(outcome, NoImages)
            self._empty += empty
            self.unreadable += not empty
            self.images += not path.is_dir()
            return
        self.images += 1
        self._found += bool(outcome.findings)
        self._known += len(outcome.known)
        self._bare += outcome.bare
        self._checked += bool(outcome.pid) or not outcome.bare

    def line(self) -> Line:
        """``54 images, 1 without call sites, 0 unreadable, every invariant holds``."""
        held = f"{self._found} with findings"
        end = bad(held) if self._found else held
        if not self._found | self.unreadable | self._empty | self._known:
            end = fine("every invariant holds")
        if not self._checked and (self._bare or not self.images):
            end = warn("nothing to check")
        unreadable = f"{self.unreadable} unreadable"
        parts = [count(self.images, "image")]
        parts += [f"{self._bare} without call sites"] if self._bare else []
        parts += [bad(unreadable) if self.unreadable else unreadable, end]
        parts += [warn(count(self._known, "known exception"))] if self._known else []
        return joined(parts, ", ")
