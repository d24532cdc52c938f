# SPDX-License-Identifier: MIT
"""Changes in the memory of a process: planned for an image's file, made where that is loaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes, Kind, Space
from ftpatch.errors import InputError
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import memory_file
from ftpatch.process.process import Process

__all__ = ["MemoryTarget", "in_memory", "in_pages", "writable_memory"]

IN_CODE = (Kind.CODE, Kind.LITERAL, Kind.PADDING)
"""Kinds of Changes to what runs. Records, relocations and headers were read when it was loaded."""
PAGE = 4096
"""Bytes to read and write at a time: no page is larger where it matters, and none smaller."""


def in_memory(changes: Changes, loaded: Loaded) -> Changes:
    """The Changes of an image's file that concern what runs, by address in the process."""
    part = changes.take(np.isin(changes.kind, IN_CODE))
    address = loaded.file.elf.address_of(part.offset) + np.uint64(loaded.bias % (1 << 64))
    return replace(part, offset=address.view(np.int64), space=Space.MEMORY)


class MemoryTarget:
    """The memory of a process, whose file descriptor ``fd`` is /proc/PID/mem, open for writing."""

    space = Space.MEMORY

    def __init__(self, process: Process, fd: int) -> None:
        self.process = process
        self.fd = fd

    @property
    def name(self) -> str:
        """The process."""
        return str(self.process)

    def read(self, start: int, size: int) -> bytes | None:
        """Read ``size`` bytes from an address on; None if they are not all there."""
        out = b""
        while len(out) < size:
            try:
                held = os.pread(self.fd, size - len(out), start + len(out))
            except (OSError, OverflowError):  # EIO: not mapped
                return None
            if not held:
                return None
            out += held
        return out

    def write(self, start: int, data: bytes) -> None:
        """Write bytes from an address on, whatever its pages' protection is. Raises InputError
        where that fails; some may have been written then."""
        done = 0
        while done < len(data):
            try:
                written = os.pwrite(self.fd, data[done:], start + done)
                if not written:  # the process has ended, and its memory is gone
                    raise InputError(None, f"{self.name}: it has ended")
                done += written
            except OverflowError:
                where = f"{start + done:#x}"
                raise InputError(None, f"{self.name}: {where} is beyond all memory") from None
            except OSError as error:
                raise InputError(
                    None,
                    f"{self.name}: cannot write to {start + done:#x}: {error.strerror}",
                    "the kernel may have been told to forbid it (proc_mem.force_override)",
                ) from None

    def held(self, changes: Changes) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Read the bytes at every Change."""
        out, there = np.zeros_like(changes.old), np.zeros(len(changes), bool)
        for start, rows in in_pages(changes):
            part = changes.take(rows)
            data = self.read(start, _end(part) - start)
            if data is None:
                continue
            where, within = part.spread()
            held = np.frombuffer(data, np.uint8)
            out[rows] = np.where(within, held[np.where(within, where - start, 0)], np.uint8(0))
            there[rows] = True
        return out, there

    def apply(self, changes: Changes) -> None:
        """Write the new bytes of verified Changes, whole pages at a time. Raises InputError."""
        for start, rows in in_pages(changes):
            part = changes.take(rows)
            data = self.read(start, _end(part) - start)
            if data is None:
                raise InputError(None, f"{self.name}: {start:#x} is not mapped any more")
            held = np.frombuffer(data, np.uint8).copy()
            part.put(held, base=start)
            self.write(start, held.tobytes())


def in_pages(changes: Changes) -> list[tuple[int, NDArray[np.intp]]]:
    """Rows of Changes by the neighbouring pages in which they begin, with the address of the
    first."""
    if not len(changes):
        return []
    order = np.argsort(changes.offset, kind="stable")
    cuts = np.flatnonzero(np.diff(changes.offset[order] // PAGE) > 1) + 1
    return [(int(changes.offset[rows[0]]), rows) for rows in np.split(order, cuts)]


@contextlib.contextmanager
def writable_memory(process: Process) -> Iterator[MemoryTarget]:
    """Open a process's memory for writing. Raises InputError where it may not be written."""
    with memory_file(process, os.O_RDWR) as fd:
        yield MemoryTarget(process, fd)


def _end(changes: Changes) -> int:
    return int((changes.offset + changes.width).max())
