"""How much of a trace file is written, and what becomes of it when its program has ended."""

from __future__ import annotations

import os
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.trace.header import open_trace

__all__ = ["read_extent", "settle"]

TASK_AT, TASK_SIZE, PATH_AT, PATH_SIZE = 216, 16, 256, 1024
"""Of `comm` and `path` in the header: offsets and sizes, bytes."""


def read_extent(path: Path) -> tuple[int, int]:
    """The process that writes a trace, and how many bytes from the start it has used; 0 and 0 for
    what is no trace."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return 0, 0
    os.close(fd)
    return header.pid, header.used


def settle(path: Path, used: int, image: Path) -> None:
    """Give back what a trace did not need, and let it name ``image``, whose traced copy is gone.
    Raises OSError."""
    name, task = bytes(image)[: PATH_SIZE - 1], os.fsencode(image.name)[: TASK_SIZE - 1]
    with path.open("r+b") as file:
        file.truncate(used)
        file.seek(PATH_AT)
        file.write(name.ljust(PATH_SIZE, b"\0"))
        file.seek(TASK_AT)
        file.write(task.ljust(TASK_SIZE, b"\0"))
