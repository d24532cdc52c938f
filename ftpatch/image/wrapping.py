# SPDX-License-Identifier: MIT
"""An image in its wrappings: where their journal lies, and how the file is made again.

vmlinux.xz, Image.gz     the journal lies inside, as in a file that is not compressed
bzImage, EFI zboot       there is no room for it inside: it lies behind, before the certificates
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.journal import Block, read_blocks
from ftpatch.errors import InputError
from ftpatch.image.compression import MAX_UNPACKED
from ftpatch.image.container import Layer, Stream
from ftpatch.image.payload import read_payload
from ftpatch.image.pe import unsigned_size

__all__ = ["blocks_behind", "carrier", "rewrap", "surrounds"]

FIELDS = 28
"""Bytes outside of the stream that a command may change: two lengths, the CRC-32, and of the PE
header the checksum and the place of the certificates; and the size of a zboot image's payload."""


def carrier(layers: Sequence[Layer]) -> Layer | None:
    """The layer that the journal lies behind; None if it lies inside."""
    return next((one for one in layers if not one.container.holds_journal), None)


def blocks_behind(path: Path, layer: Layer, inside: int) -> list[Block]:
    """The journal behind a layer whose contents have ``inside`` bytes, the latest block first.
    Raises InputError for one that contradicts itself."""
    outer = layer.outer[: unsigned_size(layer.outer)]
    return read_blocks(path, np.frombuffer(outer, np.uint8), inside)


def rewrap(
    path: Path,
    layers: Sequence[Layer],
    data: NDArray[np.uint8],
    *,
    built: bytes = b"",
    behind: Callable[[int], bytes] = lambda _: b"",
    end: int | None = None,
) -> bytes:
    """The file with other contents, ``data``, uint8[size], in the same layers, and unsigned.

    ``built`` is the file as it was before its journal: a stream may take the room that it had
    there. The journal behind a container is cut at ``end`` (default: kept), and ``behind``, given
    where it ends, is appended to it. Raises InputError where the new contents do not fit, and where
    what comes of it does not unpack to them.
    """
    if len(data) > MAX_UNPACKED:
        raise InputError(path, f"with its journal it exceeds {MAX_UNPACKED} bytes")
    inside = np.ascontiguousarray(data).data.toreadonly()
    held = carrier(layers)
    for layer in reversed(layers):
        room = Stream(layer.offset, layer.size)
        if layer is held and built:
            room = _room(path, layers, memoryview(built))
        out = layer.container.wrap(path, layer, inside, room)
        if layer is held:
            out = out if end is None else out[:end]
            out += behind(len(out))
        inside = memoryview(out)
    if not np.array_equal(np.frombuffer(read_payload(path, inside).data, np.uint8), data):
        raise InputError(path, "what was compressed does not unpack to the same")
    return bytes(inside)


def _room(path: Path, layers: Sequence[Layer], built: memoryview) -> Stream:
    """Find the stream of the layer that the journal lies behind in the file as it was built. Raises
    InputError for a file in other layers."""
    for layer in layers:
        if not layer.container.begins(built):
            break
        if not layer.container.holds_journal:
            return layer.container.place(path, built)
        _, built = layer.container.unwrap(path, built, MAX_UNPACKED)
    raise InputError(path, "journal: of another file", "start from the original")


def surrounds(now: Sequence[Layer], before: Sequence[Layer]) -> bool:
    """Return whether what is around the stream in the layer that the journal lies behind can have
    been the same before."""
    held, was = carrier(now), carrier(before)
    if held is None or was is None:
        return held is was
    end = was.offset + was.size
    size = unsigned_size(was.outer)
    if held.offset != was.offset or held.size > was.size or len(held.outer) < size:
        return False
    old, new = (np.frombuffer(one.outer[:size], np.uint8) for one in (was, held))
    differ = np.flatnonzero(old != new)
    return int(((differ < was.offset) | (differ >= end)).sum()) <= FIELDS
