# SPDX-License-Identifier: MIT
"""Progress of what takes more than a second, on standard error if that is a terminal: a line with
how far it is and how long it will take, which goes away before anything else is written.

A thread draws it, whatever the command waits for. Standard output is left alone: a bar that took
it over, as libraries do it, would take what is piped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Protocol, TextIO, TypeVar

from ftpatch.cli.paint import is_drawn_on
from ftpatch.io.activity import ACTIVITIES, Activity, doing
from ftpatch.io.cleanup import ENDING

__all__ = [
    "Copying",
    "PROGRESS",
    "Progress",
    "is_pipe",
    "progress_line",
    "room_on",
    "wait_for",
    "watched",
]

Item = TypeVar("Item")

PATIENCE = 1.0
"""Seconds of work before anything is shown."""
STEP = 0.1
"""Seconds between two looks of the line."""
SURE = 0.02
"""Part of the work after which the rest is estimated."""
WIDTH, BAR, SHORTEST = 80, 24, 8
"""Columns: of a terminal that does not say, of a bar, and of the shortest one."""
CLEARED = "\r\x1b[K"
"""Go to the line's begin and erase it (ECMA-48, EL)."""
SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"
FANCY, PLAIN = ("━", "─"), ("#", ".")
"""Characters of a bar: done, and to be done."""


class Copying(Protocol):
    """A copy that is being made, as io.output has it."""

    size: int
    copied: int

    def running(self) -> bool:
        """Return whether there is still something to copy."""


def progress_line(now: Activity, time_: float, *, width: int, fancy: bool) -> str:
    """The line for what is being done at a time, in less than ``width`` columns."""
    room = width - 1  # in the last one a terminal may wrap
    spinner = SPINNER if fancy else PLAIN_SPINNER
    taken = max(time_ - now.begun, 0.0)
    count = f" {min(now.done, now.total)}/{now.total}" if now.counted else ""
    begin = f"{spinner[int(taken / STEP) % len(spinner)]} {now.what}{count}"
    if not now.total:
        return f"{begin}  {_clock(taken)}"[:room]
    done = min(now.done / now.total, 1.0)
    left = f"{_clock(taken / done * (1 - done))} left" if done > SURE else _clock(taken)
    end = f"{int(100 * done):3}%  {left}"
    length = min(BAR, room - len(begin) - len(end) - 4)
    if length < SHORTEST:
        return f"{begin} {end}"[:room]
    full, empty = FANCY if fancy else PLAIN
    part = int(length * done)
    return f"{begin}  {full * part}{empty * (length - part)}  {end}"


def _clock(seconds: float) -> str:
    """``9 s``, ``1:09``, ``1:00:09``."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """The line of a command, drawn from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self._name = ""
        self._began = 0.0
        self._drawn = self._abandoned = False
        self._ended = threading.Event()
        self._ended.set()
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """Show what takes long of a command."""
        if not is_drawn_on(sys.stderr):
            return
        self._name, self._began = name, time.monotonic()
        self._ended.clear()
        ACTIVITIES.on_away = self.pause
        # Signals are for the main thread, which may have put them off.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        threading.Thread(target=self._run, daemon=True).start()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    @property
    def is_on(self) -> bool:
        """True from begin to end."""
        return not self._ended.is_set()

    def pause(self) -> None:
        """Take the line away; it comes back by itself."""
        with self.hidden():
            pass

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Take the line away for as long as something is written in its place."""
        with self._lock:
            self._erase()
            yield

    def end(self) -> None:
        """Take it away for good."""
        self._ended.set()
        with self._lock:
            self._erase()

    def abandon(self) -> None:
        """Draw no more, in a signal handler: who ends the command erases what is there."""
        self._abandoned = True

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write(CLEARED)

    def _run(self) -> None:
        while not self._ended.wait(STEP):
            with self._lock:
                if self._abandoned:
                    return
                now = time.monotonic()
                if ACTIVITIES.is_away:
                    self._began = now
                if self._ended.is_set() or now - self._began < PATIENCE or not _in_foreground():
                    continue
                line = progress_line(
                    ACTIVITIES.latest or Activity(self._name, begun=self._began),
                    time.monotonic(),
                    width=_columns(),
                    fancy=_is_fancy(),
                )
                self._drawn = True
                self._write(f"{CLEARED}{line}")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), text.encode(sys.stderr.encoding, "replace"))


PROGRESS = Progress()
"""Of this process."""


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except OSError:
        return WIDTH


def _is_fancy() -> bool:
    return sys.stderr.encoding.lower().replace("-", "") == "utf8"


def _in_foreground() -> bool:
    """Return whether the terminal is ours: not that of who runs in front of us."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) in (0, os.getpgrp())
    except OSError:  # it is none that anybody is controlled by
        return True


@contextlib.contextmanager
def room_on(stream: TextIO) -> Iterator[None]:
    """Make room for what is written to a stream."""
    if not PROGRESS.is_on:
        yield
    elif stream.isatty():
        with PROGRESS.hidden():
            yield
            stream.flush()
    else:
        # Who reads a pipe may have the terminal, as pagers do: from now on it is theirs.
        if is_pipe(stream):
            PROGRESS.end()
        yield


def is_pipe(stream: TextIO) -> bool:
    """Return whether another program reads what is written."""
    return stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)


def wait_for(what: Copying) -> None:
    """Wait for an output's copy."""
    with doing("copying", what.size) as now:
        while what.running():
            now.done = what.copied
            time.sleep(0.01)


def watched(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """The items, as what is being done."""
    with doing(what, total, counted=True) as now:
        for item in items:
            now.done += 1
            yield item
