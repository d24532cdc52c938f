# SPDX-License-Identifier: MIT
"""A running process, told apart from another one that gets its number later."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ftpatch.errors import InputError

__all__ = ["STARTED", "Process", "ending", "find_process", "read_status", "threads_of"]

LISTINGS = 100
"""Listings of threads until one is whole."""
STARTED = 22
"""Field of /proc/PID/stat: clock ticks from boot to its start (proc_pid_stat(5))."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process: ``pid``, ``started``: when, in clock ticks since the machine's boot; ``name``: its
    first thread's (comm); ``thread``: one that has memory, which is another when the first has
    ended; ``let_go``: registers with which its threads went on after the last stop, by number."""

    pid: int
    started: int
    name: str = field(compare=False)
    thread: int = field(compare=False)
    let_go: dict[int, np.void] = field(default_factory=dict, compare=False, repr=False)

    @property
    def place(self) -> Path:
        """Its folder in /proc."""
        return Path(f"/proc/{self.thread}")

    def __str__(self) -> str:
        return f"{self.pid} ({self.name})"

    @property
    def is_alive(self) -> bool:
        """True while it has not ended."""
        try:
            self.require_alive()
        except InputError:
            return False
        return True

    def require_alive(self) -> None:
        """Raise InputError if it has ended, whoever has its number now."""
        if find_process(self.pid).started != self.started:
            raise InputError(self.place, "the process has ended, and another one has its number")


def find_process(pid: int) -> Process:
    """Find a process that has memory of its own. Raises InputError for what is none."""
    place = Path(f"/proc/{pid}")
    try:
        held = (place / "stat").read_bytes()
        words = read_status(place)
    except (FileNotFoundError, ProcessLookupError):
        raise InputError(None, f"{pid}: no such process", "find it with `pgrep NAME`") from None
    except OSError as error:
        raise InputError(place, f"cannot read: {error.strerror}") from None
    # The name may have blanks and parentheses of its own.
    name, _, fields = held.partition(b"(")[2].rpartition(b")")
    process = Process(
        pid=pid,
        started=int(fields.split()[STARTED - 3]),
        name=os.fsdecode(name),
        thread=pid if "VmSize" in words else _thread(pid),
    )
    owner = words.get("Tgid", str(pid))
    if owner != str(pid):
        raise InputError(None, f"{process}: a thread of process {owner}", f"use --pid {owner}")
    if process.thread:
        return process
    if not words or words.get("State", "").startswith("Z"):
        raise InputError(None, f"{process}: it has ended")
    raise InputError(None, f"{process}: it is a kernel thread", "its code is that of vmlinux")


def _thread(pid: int) -> int:
    """A thread that has memory, 0 if there is none: a process whose first thread has ended is a
    zombie while others run."""
    with suppress(OSError):  # it ends meanwhile
        for place in Path(f"/proc/{pid}/task").iterdir():
            if "VmSize" in read_status(place):
                return int(place.name)
    return 0


def read_status(place: Path) -> dict[str, str]:
    """The lines of a status file of /proc by name; ``place``: a process's folder, or a thread's.
    Empty if it has ended."""
    try:
        held = (place / "status").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    lines = (line.partition(":") for line in held.split("\n"))
    return {name: value.strip() for name, _, value in lines}


def threads_of(place: Path) -> list[int]:
    """The numbers of a process's threads; ``place``: its folder. A listing ends early where the
    thread that it has come to ends (proc_task_readdir() in fs/proc/base.c); the folder's links tell
    how many there are."""
    folder, names = place / "task", list[str]()
    for _ in range(LISTINGS):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - it is faster
            if len(names) >= folder.stat().st_nlink - 2:
                break
        except OSError:
            return []
    return list(map(int, names))


@contextmanager
def ending(pid: int) -> Iterator[Callable[[float | None], bool]]:
    """Yield what waits for the end of a process, at most so many seconds (None: as long as it
    takes), and returns whether it has ended. Nothing is taken of it: its parent can wait for it.
    Raises ProcessLookupError for one that somebody has waited for."""
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()  # select() takes no descriptor from 1024 on
        poll.register(fd, select.POLLIN)
        yield lambda seconds: bool(poll.poll(None if seconds is None else seconds * 1000))
    finally:
        os.close(fd)
