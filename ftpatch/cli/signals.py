"""Signals that end a command: what it was making goes away first."""

from __future__ import annotations

import os
import signal
import sys

from ftpatch.cli.console import error_line
from ftpatch.unfinished import UNFINISHED

__all__ = ["handle_signals", "interrupted"]

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = "\r\x1b[K\x1b[?25h"
"""What a progress bar would have done at its end: the line is empty, the cursor seen."""


def handle_signals() -> None:
    """From now on; those that are ignored, as nohup does, stay so."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupted)


def interrupted(number: int, frame: object) -> None:
    """End. Not by an exception: that would have to find its way through libraries in C++. Nobody is
    told of a reader that went away."""
    UNFINISHED.discard()
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
    if number != signal.SIGPIPE:
        error_line(f"interrupted; {UNFINISHED.said()}")
    os._exit(128 + number)
