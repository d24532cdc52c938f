"""How much of a trace file is written, and what becomes of it when its program has ended."""

from __future__ import annotations

import os
import struct
from pathlib import Path

__all__ = ["read_extent", "settle"]

HEAD = struct.Struct("<8s6I2Q")
PID_AT, TASK_AT, TASK_SIZE, PATH_AT, PATH_SIZE = 104, 216, 16, 256, 1024
MAGIC = b"FTPTRACE"


def read_extent(path: Path) -> tuple[int, int]:
    """The process that writes a trace, and how many bytes from the start it has used; 0 and 0 for
    what is no trace. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        head = file.read(PID_AT + 4)
    if len(head) < PID_AT + 4 or head[: len(MAGIC)] != MAGIC:
        return 0, 0
    _, _, start, _, _, _, _, size, taken = HEAD.unpack_from(head)
    (pid,) = struct.unpack_from("<I", head, PID_AT)
    return pid, min(start + taken, size)


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
