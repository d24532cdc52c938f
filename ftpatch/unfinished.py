"""What a signal handler must know of the output in the making."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

__all__ = ["UNFINISHED", "Unfinished"]


class Unfinished:
    """``name``: the file to take away, where it has one; ``appeared``: it is too late for that;
    ``many``: the command writes many files, some of which may have appeared; ``passing``: files and
    folders that go away in any case."""

    name: Path | None = None
    appeared = False
    many = False

    def __init__(self) -> None:
        self.passing: list[Path] = []

    def said(self) -> str:
        """What an interrupted command left."""
        if self.many:
            return "what was written so far stays"
        return "the output is written" if self.appeared else "nothing was written"

    def discard(self) -> None:
        """Take the file away, and what goes away in any case."""
        if self.name is not None:
            self.name.unlink(missing_ok=True)
        for path in self.passing:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


UNFINISHED: Final = Unfinished()
