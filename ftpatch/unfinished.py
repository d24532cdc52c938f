"""What a signal handler must know of the output in the making."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["UNFINISHED", "Unfinished"]


class Unfinished:
    """``name``: the file to take away, where it has one; ``appeared``: it is too late for that."""

    name: Path | None = None
    appeared = False

    def discard(self) -> None:
        """Take the file away."""
        if self.name is not None:
            self.name.unlink(missing_ok=True)


UNFINISHED: Final = Unfinished()
