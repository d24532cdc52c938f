# SPDX-License-Identifier: MIT
"""The first bytes of a compressed file's contents, from its own first bytes: enough to identify the
contents, without unpacking more."""

from __future__ import annotations

import zlib

from ftpatch.image.decoders import LZ4_LEGACY, MEMORY, WINDOW

__all__ = ["beginning"]


def beginning(kind: str, head: bytes, size: int) -> bytes:
    """Unpack at most ``size`` bytes of what begins with ``head``, compressed as kind_of() says;
    none if it is damaged, or cannot be unpacked from its start alone."""
    try:
        return _read(kind, head, size)[:size]
    except (zlib.error, OSError, EOFError, RuntimeError, ValueError, MemoryError):
        return b""


def _read(kind: str, head: bytes, size: int) -> bytes:
    if kind == "gzip":
        return zlib.decompressobj(31).decompress(head, size)
    if kind == "bzip2":
        import bz2

        return bz2.BZ2Decompressor().decompress(head, size)
    if kind in ("xz", "lzma"):
        import lzma

        try:
            return lzma.LZMADecompressor(memlimit=MEMORY).decompress(head, size)
        except lzma.LZMAError:
            return b""
    if kind == "zstd":
        import zstandard

        try:
            unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW)
            return unpacker.stream_reader(head, read_across_frames=False).read(size)
        except zstandard.ZstdError:
            return b""
    if kind == "lz4" and head[:4] != LZ4_LEGACY:
        import lz4.frame

        read: bytes = lz4.frame.LZ4FrameDecompressor().decompress(head, size)
        return read
    return b""
