# SPDX-License-Identifier: MIT
"""Signals that end a command: what it was making goes away first."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from ftpatch.cli.paint import clean, is_drawn_on
from ftpatch.cli.progress import PROGRESS
from ftpatch.errors import FtpatchError
from ftpatch.io.cleanup import CLEANUP, ENDING, ending_handled
from ftpatch.io.mapped_faults import tell_faults

__all__ = ["asked_to_end", "handle_signals", "interrupted"]

SHOW_CURSOR = "\r\x1b[K\x1b[?25h"
"""Escape sequences that end what was drawn: the line is empty, the cursor seen."""
PATIENCE = 3.0
"""Seconds that workers get to take away what they were making."""


def handle_signals() -> None:
    """From now on; those that are ignored, as nohup does, stay so."""
    tell_faults(_unreadable)
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupted)


def interrupted(number: int, frame: FrameType | None) -> None:
    """End, and say what is there. Not by an exception: that would have to find its way through
    libraries in C++. Nobody is told of a reader that went away before anything was written."""
    if CLEANUP.postpones(number, interrupted):
        return
    CLEANUP.ending = True
    PROGRESS.abandon()
    _end_workers()
    CLEANUP.discard()
    left = CLEANUP.said()
    said = f"interrupted; {left}" if left else "interrupted"
    if number == signal.SIGPIPE:
        written = CLEANUP.many or CLEANUP.appeared
        said = f"standard output: Broken pipe; {left}" if written else ""
    _say(said)
    os._exit(128 + number)


@contextlib.contextmanager
def asked_to_end() -> Iterator[threading.Event]:
    """Signals that would end ftpatch ask it to take everything out."""
    asked = threading.Event()
    with ending_handled(lambda *_: asked.set()):
        yield asked


def _unreadable(error: FtpatchError) -> None:
    """A page of a mapped file cannot be read: that ends the command, as in interrupted()."""
    CLEANUP.ending = True
    PROGRESS.abandon()
    CLEANUP.discard()
    _say(str(error))
    os._exit(CLEANUP.failure)


def _say(text: str) -> None:
    """A line of standard error, which may be in the middle of another by way of sys.stderr."""
    line = SHOW_CURSOR if is_drawn_on(sys.stderr) else ""
    line += f"ftpatch: {clean(text)}\n" if text else ""
    with contextlib.suppress(OSError):
        os.write(2, line.encode("utf-8", "backslashreplace"))


def _end_workers() -> None:
    """Those of a tree: nothing may appear after what is said."""
    if "multiprocessing.process" not in sys.modules:
        return
    import multiprocessing
    from multiprocessing.connection import wait

    left = multiprocessing.active_children()
    for worker in left:
        worker.terminate()
    end = time.monotonic() + PATIENCE
    while left and (seconds := end - time.monotonic()) > 0:
        gone = wait([worker.sentinel for worker in left], seconds)
        left = [worker for worker in left if worker.sentinel not in gone]
    for worker in left:
        worker.kill()
