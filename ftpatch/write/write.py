# SPDX-License-Identifier: MIT
"""The only writer: apply verified Changes to the copy, append the journal, rename."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes
from ftpatch.core.journal import outer, pack_block, read_blocks
from ftpatch.errors import InputError, OutputError
from ftpatch.image import Image
from ftpatch.image.compression import MAX_UNPACKED, pack
from ftpatch.io.output import Copy
from ftpatch.write.target import FileTarget, write_all

__all__ = ["updated", "write", "write_new"]


def write(
    copy: Copy,
    image: Image,
    changes: Changes,
    *,
    journal: bool = True,
    length: int | None = None,
    tail: bytes = b"",
    packed: bytes = b"",
) -> None:
    """Apply verified Changes to ``copy``, a copy of ``image``, and publish the file.

    With ``length`` the file ends there (bytes); ``tail`` follows. If anything changes and
    ``journal`` is wanted, its block comes last. What was compressed is so again, or is ``packed``.
    Raises OutputError, and InputError for what could not be read again; then nothing appears.
    """
    try:
        copy.finish()
        copy.check_unchanged()
        if not len(changes) and not tail and length in (None, len(image.data)):
            pass  # a plain copy, however it was compressed
        elif image.compression:
            if not packed:
                outside = _outside(copy, image) if journal else b""
                end, behind = _behind(image, changes, journal, length, tail, outside)
                packed = _packed(image, _joined(image, changes, end, behind))
            _replace(copy, packed)
        else:
            end, behind = _behind(image, changes, journal, length, tail)
            FileTarget(copy.target, image.data, copy.fd).apply(changes)
            os.ftruncate(copy.fd, end)
            write_all(copy.fd, behind, end)
        copy.appear()
    except OSError as error:
        raise OutputError(copy.target, f"cannot write: {error.strerror}") from None


def updated(
    image: Image,
    changes: Changes,
    *,
    journal: bool = True,
    length: int | None = None,
    tail: bytes = b"",
) -> NDArray[np.uint8]:
    """The bytes that write() would write, uncompressed, uint8[size]."""
    return _joined(image, changes, *_behind(image, changes, journal, length, tail))


def _joined(image: Image, changes: Changes, end: int, behind: bytes) -> NDArray[np.uint8]:
    size = max(len(image.data), end + len(behind))  # bytes about to be cut off may be changed too
    data = np.empty(size, np.uint8)
    data[: len(image.data)] = image.data
    FileTarget(image.path, data).apply(changes)
    data[end : end + len(behind)] = np.frombuffer(behind, np.uint8)
    return data[: end + len(behind)]


def _behind(
    image: Image,
    changes: Changes,
    journal: bool,
    length: int | None,
    tail: bytes,
    outside: bytes = b"",
) -> tuple[int, bytes]:
    """End of the image's own bytes, and the bytes to append there."""
    size = len(image.data)
    cut = b"" if length is None else image.data[length:].tobytes()
    wanted = journal and (len(changes) or cut)
    block = pack_block(changes, size, cut, outside) if wanted else b""
    return size if length is None else length, tail + block


def _outside(copy: Copy, image: Image) -> bytes:
    """Return the part of the compressed file that the journal keeps, so that undo can restore it
    exactly. The output of other compressors is kept whole. A file with a journal is most likely
    our own output and is not kept; otherwise each command would double its size."""
    held = os.pread(copy.fd, copy.size, 0)
    while len(held) < copy.size and (more := os.pread(copy.fd, copy.size, len(held))):
        held += more
    ours = bool(read_blocks(image.path, image.data[: image.end]))
    known = ours and pack(image.compression, image.data.data) == held
    return outer(image.path, held, len(image.data), known=known)


def _packed(image: Image, data: NDArray[np.uint8]) -> bytes:
    if len(data) > MAX_UNPACKED:
        raise InputError(image.path, f"with its journal it exceeds {MAX_UNPACKED} bytes")
    return pack(image.compression, data.data)


def write_new(copy: Copy, data: bytes) -> None:
    """Publish ``data`` in place of the copied file. Raises OutputError."""
    try:
        copy.finish()
        _replace(copy, data)
        copy.appear()
    except OSError as error:
        raise OutputError(copy.target, f"cannot write: {error.strerror}") from None


def _replace(copy: Copy, data: bytes) -> None:
    os.ftruncate(copy.fd, 0)
    write_all(copy.fd, data, 0)
