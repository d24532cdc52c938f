# SPDX-License-Identifier: MIT
"""Reading a process's memory through /proc/PID/mem, whatever its pages' protection is."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.process.maps import Mapping
from ftpatch.process.process import Process
from ftpatch.process.refusals import why_not_accessed

__all__ = ["Memory", "memory_file", "opened_memory", "require_readable"]


class Memory:
    """The memory of a process, as ``mappings`` were when it was opened. Nothing is stopped: what is
    read may change while it is."""

    def __init__(self, fd: int, mappings: list[Mapping]) -> None:
        self._fd = fd
        self._mappings = mappings

    def read(self, start: int, size: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Read ``size`` bytes from an address on, uint8[size], and which of them are there,
        bool[size]; the others are zero."""
        out, there = np.zeros(size, np.uint8), np.zeros(size, bool)
        first = bisect_right(self._mappings, start, key=lambda mapping: mapping.end)
        for mapping in self._mappings[first:]:
            if mapping.start >= start + size:
                break
            at, high = max(mapping.start, start), min(mapping.end, start + size)
            while at < high:
                try:
                    got = os.preadv(self._fd, [out.data[at - start : high - start]], at)
                except (OSError, OverflowError):  # EIO: gone, or beyond the end of its file
                    break
                if not got:
                    break
                there[at - start : at - start + got] = True
                at += got
        return out, there


@contextmanager
def opened_memory(process: Process, mappings: list[Mapping]) -> Iterator[Memory]:
    """Open a process's memory. Raises InputError where it may not be read."""
    with memory_file(process, os.O_RDONLY) as fd:
        yield Memory(fd, mappings)


@contextmanager
def memory_file(process: Process, mode: int) -> Iterator[int]:
    """Open a process's memory file to read (os.O_RDONLY), or to write as well (os.O_RDWR). Raises
    InputError where that may not be."""
    try:
        fd = os.open(process.place / "mem", mode | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        raise InputError(None, f"{process}: the process has ended") from None
    except PermissionError:
        raise why_not_accessed(process) from None
    except OSError as error:
        done = "read" if mode == os.O_RDONLY else "written"
        reason = f"{process}: its memory cannot be {done}: {error.strerror}"
        raise InputError(None, reason) from None
    try:
        yield fd
    finally:
        os.close(fd)


def require_readable(process: Process) -> None:
    """Raise InputError for a process whose memory may not be read, such as another user's. One that
    has ended has none."""
    try:
        with memory_file(process, os.O_RDONLY):
            pass
    except InputError:
        if process.is_alive:
            raise
