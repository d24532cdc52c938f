# SPDX-License-Identifier: MIT
"""Text on a terminal: through a pager if it is longer than the screen."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from typing import IO, Any

from ftpatch.cli.progress import PROGRESS

__all__ = ["Pager", "wants_pager"]

USUAL = "less -RF"
SIGNALS = (signal.SIGPIPE, signal.SIGINT)
"""Of a pager that ends before the text does, and from keys that mean the pager."""


def wants_pager() -> bool:
    """True if standard output is a terminal that one can page on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


class Pager:
    """Holds text back until it is longer than the screen, and then starts ``$PAGER``; without one,
    writes it as it comes. ``is_gone``: nobody reads on."""

    def __init__(self) -> None:
        self.is_gone = False
        self._held: list[bytes] | None = []
        self._room = shutil.get_terminal_size().lines - 1
        self._process: subprocess.Popen[bytes] | None = None
        self._before: list[Any] = []

    def write(self, raw: bytes) -> None:
        """The next part."""
        if self._held is None:
            self._pass_on(raw)
            return
        self._held.append(raw)
        self._room -= raw.count(b"\n")
        if self._room < 0:
            self._start()
            self._release()

    def close(self) -> None:
        """Write what is held, and wait until the pager ends."""
        self._release()
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)
        self._process = None

    def _start(self) -> None:
        words = _words(os.environ.get("PAGER", USUAL))
        sys.stdout.flush()
        if not words:
            return
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE)
        except OSError:
            return
        self._before = [signal.signal(number, signal.SIG_IGN) for number in SIGNALS]

    def _release(self) -> None:
        held, self._held = self._held, None
        for raw in held or ():
            self._pass_on(raw)

    def _pass_on(self, raw: bytes) -> None:
        PROGRESS.end()
        out: IO[bytes] = sys.stdout.buffer
        if self._process is not None and self._process.stdin is not None:
            out = self._process.stdin
        try:
            if not self.is_gone:
                out.write(raw)
        except BrokenPipeError:
            self.is_gone = True


def _words(command: str) -> list[str]:
    """The words of a command; none for one that only passes text on, or that is malformed."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [] if words == ["cat"] else words
