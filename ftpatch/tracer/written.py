# SPDX-License-Identifier: MIT
"""Tests of whether a process still writes to a trace file."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from ftpatch.trace.extent import read_extent

__all__ = ["is_mapped", "is_own", "is_written"]


def is_own(path: Path) -> bool:
    """Test whether it is a regular file without another name."""
    try:
        held = path.lstat()
    except OSError:  # gone
        return False
    return stat.S_ISREG(held.st_mode) and held.st_nlink == 1


def is_mapped(path: Path) -> bool:
    """Test whether a process writes to a trace, or is about to: its header may not be written
    yet."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return is_written(fd, [read_extent(path)[0]])
    finally:
        os.close(fd)


def is_written(fd: int, pids: list[int]) -> bool:
    """Test whether any process has a file open for writing, or mapped. ``pids``: the candidates
    where the kernel cannot tell."""
    try:
        # F_RDLCK is granted only if nobody has the file open for writing (fcntl(2), "Leases").
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN or any(map(_runs, pids))
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _runs(pid: int) -> bool:
    """Test whether a process still runs. Its main thread may have exited before the others: that
    alone is state Z."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False
    return any(_state(task) not in ("Z", "X", "") for task in tasks)


def _state(task: Path) -> str:
    try:
        text = (task / "stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].strip()[:1]
