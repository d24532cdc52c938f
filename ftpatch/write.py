"""The one writer: verified Changes into the copy, the journal behind it, then the rename."""

from __future__ import annotations

import os

import numpy as np

from ftpatch.changes import Changes
from ftpatch.copy import Copy
from ftpatch.errors import InputError, OutputError
from ftpatch.journal import pack_block

__all__ = ["write"]

STEP = 4 << 20
"""Bytes that are read, changed and written back at a time."""


def write(
    copy: Copy,
    changes: Changes,
    *,
    journal: bool = True,
    length: int | None = None,
    tail: bytes = b"",
) -> None:
    """Apply Changes, which must have passed the verifier, and let the file appear.

    With ``length`` the file ends there (bytes), followed by ``tail``. If anything changes and
    ``journal`` is wanted, its block comes last. Raises OutputError; then nothing appears.
    """
    try:
        copy.finish()
        copy.check_unchanged()
        _apply(copy, changes)
        if length is not None:
            os.ftruncate(copy.fd, length)
            _put(copy.fd, tail, length)
        if journal and len(changes):
            end = os.fstat(copy.fd).st_size
            _put(copy.fd, pack_block(changes, end), end)
        copy.appear()
    except OSError as error:
        raise OutputError(copy.target, f"cannot write: {error.strerror}") from None


def _apply(copy: Copy, changes: Changes) -> None:
    """One pass over what is near together, instead of one write for each Change. The old bytes are
    compared once more: they were verified in the input, and this is its copy."""
    changes = changes.ordered()
    cuts = np.flatnonzero(np.diff(changes.offset // STEP)) + 1
    for rows in np.split(np.arange(len(changes)), cuts):
        if not len(rows):
            continue
        part = changes.take(rows)
        start = int(part.offset[0])
        end = int((part.offset + part.width).max())
        held = np.frombuffer(os.pread(copy.fd, end - start, start), np.uint8).copy()
        before = held.copy()
        part.put(before, old=True, base=start)
        if not np.array_equal(before, held):
            raise InputError(copy.target, "the input was changed while it was read", "try again")
        part.put(held, base=start)
        _put(copy.fd, held.tobytes(), start)


def _put(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        done = os.pwrite(fd, view, offset)
        view, offset = view[done:], offset + done
