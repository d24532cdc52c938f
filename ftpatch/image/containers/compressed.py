# SPDX-License-Identifier: MIT
"""A compressed file: Image.gz, vmlinux.xz, a module as distributions store it."""

from __future__ import annotations

from pathlib import Path

from ftpatch.image.compression import FOR_MODULES, kind_of, pack
from ftpatch.image.container import Layer, Stream, Wrapper, unpack_stream

__all__ = ["CONTAINER"]


class Compressed(Wrapper):
    """A stream from the first byte to the last. Its magic is the shortest, so it is tried last."""

    name = "compressed"
    order = 100
    head = 16
    bare = True
    repacks = FOR_MODULES

    def begins(self, head: memoryview) -> bool:
        return kind_of(head) is not None

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        return unpack_stream(self, path, data, self.place(path, data), limit)

    def wrap(self, path: Path | str, layer: Layer, inside: memoryview, room: Stream) -> bytes:
        return pack(layer.compression, inside)


CONTAINER: Wrapper = Compressed()
