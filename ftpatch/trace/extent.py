# SPDX-License-Identifier: MIT
"""Written length of a trace file, and its truncation when the program has ended."""

from __future__ import annotations

import os
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.layout import offset_of, structure
from ftpatch.trace.header import open_trace

__all__ = ["is_of", "read_extent", "settle"]


def read_extent(path: Path) -> tuple[int, int]:
    """The process that writes a trace, and how many bytes from the start it has used; 0 and 0 for
    what is no trace."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return 0, 0
    os.close(fd)
    return header.pid, header.used


def is_of(path: Path, owner: bytes | None) -> bool:
    """Return whether a trace is of the program that ``owner`` (laid_in_id()) tells, if that is
    known."""
    try:
        fd, header = open_trace(path)
    except InputError:
        return False
    os.close(fd)
    return owner is None or header.image_id == owner


def settle(path: Path, used: int | None, image: Path | None) -> None:
    """Let a trace name ``image``, whose traced copy is gone, and give back what is behind the first
    ``used`` bytes. None: it is of another program; it is still written to. Raises OSError."""
    with path.open("r+b") as file:
        if used is not None:
            file.truncate(used)
        if image is None:
            return
        for member, text in (("path", bytes(image)), ("comm", os.fsencode(image.name))):
            size = structure("trace_header")[member].itemsize
            file.seek(offset_of("trace_header", member))
            file.write(text[: size - 1].ljust(size, b"\0"))
