# SPDX-License-Identifier: MIT
"""The only writer: apply verified Changes to the copy, append the journal, rename."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes
from ftpatch.core.journal import outer, pack_block
from ftpatch.errors import InputError, OutputError
from ftpatch.image import Image
from ftpatch.image.pe import read_pe
from ftpatch.image.wrapping import rewrap
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
    sign: Callable[[int], None] = lambda _: None,
) -> None:
    """Apply verified Changes to ``copy``, a copy of ``image``, and publish the file.

    With ``length`` the file ends there (bytes); ``tail`` follows. If anything changes and
    ``journal`` is wanted, its block comes last. What was compressed is so again, or is ``packed``;
    ``sign`` is given the file's descriptor when it is complete. Raises OutputError, InputError for
    what could not be read again, and what ``sign`` raises; then nothing appears.
    """
    try:
        copy.finish()
        copy.check_unchanged()
        if not len(changes) and not tail and length in (None, len(image.data)):
            pass  # a plain copy, however it was compressed
        elif image.layers:
            _replace(copy, packed or _wrapped(copy, image, changes, journal, length, tail))
            sign(copy.fd)
        else:
            end, behind = _behind(image, changes, journal, length, tail)
            FileTarget(copy.target, image.data, copy.fd).apply(changes)
            os.ftruncate(copy.fd, end)
            write_all(copy.fd, behind, end)
            sign(copy.fd)
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
    end = size if length is None else length
    start = end + len(tail) if read_pe(image.data.data) is not None else None
    block = pack_block(changes, size, cut, outside, start=start) if wanted else b""
    return end, tail + block


def _wrapped(
    copy: Copy, image: Image, changes: Changes, journal: bool, length: int | None, tail: bytes
) -> bytes:
    """The file that the image lies in, with the Changes and their block, inside or behind it."""
    outside = _outside(copy, image) if journal and len(changes) else b""
    if image.carrier is None:
        end, behind = _behind(image, changes, journal, length, tail, outside)
        return rewrap(image.path, image.layers, _joined(image, changes, end, behind))

    def block(start: int) -> bytes:
        return pack_block(changes, len(image.data), outside=outside, start=start, behind=True)

    end, behind = _behind(image, changes, False, length, tail)
    data = _joined(image, changes, end, behind)
    if len(data) != len(image.data):
        reason = f"the kernel in a {image.carrier.name} cannot grow"
        raise InputError(image.path, reason, f"extract it: `ftpatch extract {image.path} -o FILE`")
    return rewrap(
        image.path,
        image.layers,
        data,
        built=image.built,
        behind=block if journal and len(changes) else lambda _: b"",
    )


def _outside(copy: Copy, image: Image) -> bytes:
    """Return the part of the compressed file that the journal keeps, so that undo can restore it
    exactly. The output of other compressors is kept whole. A file with a journal is most likely
    our own output and is not kept; otherwise each command would double its size."""
    held = os.pread(copy.fd, copy.size, 0)
    while len(held) < copy.size and (more := os.pread(copy.fd, copy.size, len(held))):
        held += more
    known = False
    if image.blocks:
        known = rewrap(image.path, image.layers, image.data, built=image.built) == held
    return outer(image.path, held, len(image.data), known=known)


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
