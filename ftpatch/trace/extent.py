# SPDX-License-Identifier: MIT
"""A trace file's written length, and its truncation when the program has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from ftpatch.errors import InputError
from ftpatch.layout import offset_of, structure
from ftpatch.trace.header import open_trace
from ftpatch.trace.losses import ACCOUNT

__all__ = ["is_of", "read_extent", "settle"]


def read_extent(path: Path) -> tuple[int, int]:
    """Return the process that writes a trace, and how many bytes it has used from the start; 0 and
    0 for what is not a trace."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return 0, 0
    os.close(fd)
    return header.pid, header.used


def is_of(path: Path, owner: bytes | None) -> bool:
    """Return whether a trace is of the program whose laid_in_id() is ``owner``; None accepts
    any."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return False
    os.close(fd)
    return owner is None or header.image_id == owner


def settle(path: Path, used: int | None, image: Path | None, comm: str = "") -> None:
    """Record ``image``, and its task's name ``comm`` (empty: as it is), in a trace whose traced
    copy is gone, and truncate the file to the ``used`` bytes of read_extent(), where nothing of it
    is unused. None: the trace is of another program; it is still being written. Raises OSError."""
    with path.open("r+b") as file:
        if used is not None:
            file.truncate(_moved_together(path, file, used))
        if image is None:
            return
        for member, text in (("path", bytes(image)), ("comm", os.fsencode(comm))):
            if not text:
                continue
            size = structure("trace_header")[member].itemsize
            file.seek(offset_of("trace_header", member))
            file.write(text[: size - 1].ljust(size, b"\0"))


def _moved_together(path: Path, file: BinaryIO, used: int) -> int:
    """Move what threads lost from the end of a file to the end of its chunks; return where it ends
    then."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return used
    os.close(fd)
    start, size = header.chunks_used, header.used - header.accounts
    if not header.accounts or not header.accounted or header.accounts <= start:
        return used
    file.seek(header.accounts)
    held = file.read(size)[: size // ACCOUNT.itemsize * ACCOUNT.itemsize]
    file.seek(start)
    file.write(held)
    file.seek(offset_of("trace_header", "accounts"))
    file.write(header.order.packed(start, 8))
    file.flush()
    return start + len(held)
