# SPDX-License-Identifier: MIT
"""A trace file as words and chunks' headers: here its numbers become this machine's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder
from ftpatch.errors import InputError
from ftpatch.layout import structure

__all__ = ["HEADER", "WordFile", "heads_of", "read_head", "read_words"]

HEADER = structure("trace_chunk")
"""A chunk's header."""


class WordFile(NamedTuple):
    """An open trace file: its path, for errors, its descriptor, and the order of its bytes."""

    path: Path
    fd: int
    order: ByteOrder


def read_words(file: WordFile, at: int, row: NDArray[np.uint64]) -> None:
    """Fill a zeroed row of words, uint64[n], from a file's offset ``at`` on. What is behind its end
    stays zero. Raises InputError."""
    _fill(file, at, row.view(np.uint8).data)
    kind = file.order.kind("u8")
    if kind != row.dtype:
        row[:] = row.view(kind)


def read_head(file: WordFile, at: int) -> NDArray[np.void]:
    """Read the HEADER at a file's offset ``at``, HEADER[1]; zeros behind its end. Raises
    InputError."""
    room = np.zeros(HEADER.itemsize, np.uint8)
    _fill(file, at, room.data)
    return heads_of(room, file.order)


def heads_of(raw: NDArray[np.uint8], order: ByteOrder) -> NDArray[np.void]:
    """HEADERs, of bytes in a file's order, uint8[..., HEADER.itemsize]."""
    return raw.view(order.record(HEADER)).ravel().astype(HEADER, copy=False)


def _fill(file: WordFile, at: int, room: memoryview) -> None:
    done = 0
    try:
        while done < len(room):
            got = os.preadv(file.fd, [room[done:]], at + done)
            if not got:  # the file has shrunk: treat the rest as never written
                break
            done += got
    except OSError as error:
        raise InputError(file.path, f"cannot read: {error.strerror}") from None
