# SPDX-License-Identifier: MIT
"""Targets of Changes: a Change is verified against, and written to, a target of its space."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes, Space
from ftpatch.errors import InputError

__all__ = ["FileTarget", "Target", "require_space", "write_all"]

STEP = 4 << 20
"""Bytes to read, change and write back at a time."""


class Target(Protocol):
    """Bytes that can be read and changed by their offset in ``space``; ``name`` is for messages."""

    @property
    def space(self) -> Space:
        """The space of the Changes it accepts."""
        ...

    @property
    def name(self) -> str:
        """The file or process."""
        ...

    def held(self, changes: Changes) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Read the bytes at every Change: uint8[n, k], zero beyond a row's width, and whether the
        whole row is readable, bool[n]; an unreadable row is zero."""
        ...

    def apply(self, changes: Changes) -> None:
        """Write the new bytes of verified Changes. Raises ValueError for another space."""
        ...


def require_space(target: Target, changes: Changes) -> None:
    """Raise ValueError for Changes of another space than the target's."""
    if len(changes) and changes.space != target.space:
        found, wanted = changes.space.name.lower(), target.space.name.lower()
        raise ValueError(f"{target.name}: Changes of the space {found}, not {wanted}")


class FileTarget:
    """A file at ``path`` with the bytes ``data``, uint8[size]. Changes are written to ``fd``, a
    copy of it, or without one to ``data``."""

    space = Space.FILE

    def __init__(self, path: Path | None, data: NDArray[np.uint8], fd: int = -1) -> None:
        self.path = path
        self.data = data
        self.fd = fd

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self.path)

    def held(self, changes: Changes) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Read the bytes at every Change."""
        end = changes.offset + changes.width
        return changes.held(self.data), (changes.offset >= 0) & (end <= len(self.data))

    def apply(self, changes: Changes) -> None:
        """Write the new bytes of all Changes. Raises OSError, and InputError where the copy does
        not hold the old ones."""
        require_space(self, changes)
        if self.fd < 0:
            changes.put(self.data)
        else:
            self._write(changes.ordered())

    def _write(self, changes: Changes) -> None:
        """Write neighbouring Changes in one pass instead of one by one. Compare the old bytes once
        more: they were verified in the input, but this is the copy."""
        cuts = np.flatnonzero(np.diff(changes.offset // STEP)) + 1
        for rows in np.split(np.arange(len(changes)), cuts):
            if not len(rows):
                continue
            part = changes.take(rows)
            start = int(part.offset[0])
            end = int((part.offset + part.width).max())
            held = np.frombuffer(os.pread(self.fd, end - start, start), np.uint8).copy()
            before = held.copy()
            part.put(before, old=True, base=start)
            if not np.array_equal(before, held):
                reason = "the input changed while it was being read"
                raise InputError(self.path, reason, "try again")
            part.put(held, base=start)
            write_all(self.fd, held.tobytes(), start)


def write_all(fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data`` at an offset of a file. Raises OSError."""
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
