"""What a signal handler must know of the output in the making."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["UNFINISHED", "Unfinished"]


class Unfinished:
    """``name``: the file to take away, where it has one; ``appeared``: it is too late for that;
    ``many``: the command writes many files, some of which may have appeared."""

    name: Path | None = None
    appeared = False
    many = False

    def said(self) -> str:
        """What an interrupted command left."""
        if self.many:
            return "what was written so far stays"
        return "the output is written" if self.appeared else "nothing was written"

    def discard(self) -> None:
        """Take the file away."""
        if self.name is not None:
            self.name.unlink(missing_ok=True)


UNFINISHED: Final = Unfinished()
