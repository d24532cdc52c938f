# SPDX-License-Identifier: MIT
"""State of the output being written, for signal handlers."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

__all__ = ["ENDING", "CLEANUP", "Cleanup", "ending_handled"]

_OTHERS = {"SIGKILL", "SIGSTOP"} | {  # cannot be caught; stop, or are ignored, unless handled
    *("SIGCHLD", "SIGCONT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH"),
    # Raised again and again by the same instruction, unless handled in C.
    *("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"),
}
ENDING: Final = tuple(
    number
    for number in sorted(signal.valid_signals())
    if getattr(number, "name", "SIGRT") not in _OTHERS
)
"""Signals that end a process by default (signal(7)), and that Python can handle."""
Handler = Callable[[int, FrameType | None], None]


@contextmanager
def ending_handled(handler: Callable[[int, FrameType | None, Any], None]) -> Iterator[None]:
    """Let ``handler`` handle the signals that end a process, but for those that are ignored; it
    takes what handled them before, too, which does so again afterwards."""
    before = {
        int(number): held
        for number in ENDING
        if (held := signal.getsignal(number)) not in (None, signal.SIG_IGN)
    }
    for number in before:
        signal.signal(number, lambda number, frame: handler(number, frame, before[number]))
    try:
        yield
    finally:
        for number, held in before.items():
            signal.signal(number, held)


class Cleanup:
    """``name``: the file to remove, if it has one; ``appeared``: it is too late for that; ``many``:
    the command writes many files, some of which may have appeared; ``one_of_many``: an error in one
    file must not end the others; ``passing``: files and directories to remove in any case;
    ``entered``: numbers of the processes that hold something of ours; ``writes``: it may write at
    all; ``ending``: a signal is ending the process; ``failure``: the
    command's exit code on failure.

    As a context manager, it defers signals that end the process to the end of the block. Masks
    alone cannot do that: other threads have their own, and Python's handlers run in the main one.
    """

    name: Path | None = None
    appeared = False
    many = False
    one_of_many = False
    writes = True
    ending = False
    failure = 2

    def __init__(self) -> None:
        self.passing: list[Path] = []
        self.entered: set[int] = set()
        self._depth = 0
        self._late: tuple[int, Handler] | None = None

    def __enter__(self) -> Cleanup:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._late is not None and not self._depth:
            (number, handler), self._late = self._late, None
            handler(number, None)

    @property
    def is_asked(self) -> bool:
        """Test whether a signal waits for the end of the block."""
        return self._late is not None

    def postpones(self, number: int, handler: Handler) -> bool:
        """Return whether a handler must be deferred (it is then called later), or comes too
        late."""
        if self._depth and self._late is None:
            self._late = number, handler
        return self.ending or self._depth > 0

    def said(self) -> str:
        """Describe what an interrupted command left behind; empty of one that only reads."""
        if self.entered:
            pids = "".join(f" --pid {pid}" for pid in sorted(self.entered))
            return f"`ftpatch undo{pids}` takes out what it has left"
        if self.many:
            return "files written so far are kept"
        if self.appeared:
            return "the output is written"
        return "nothing was written" if self.writes else ""

    def discard(self) -> None:
        """Remove the file, and whatever is removed in any case."""
        if self.name is not None:
            self.name.unlink(missing_ok=True)
        for path in self.passing:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


CLEANUP: Final = Cleanup()
