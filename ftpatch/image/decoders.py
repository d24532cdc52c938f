# SPDX-License-Identifier: MIT
"""Decoders of compressed streams, on top of libraries, that hardly exceed the size requested."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

from ftpatch.io.activity import doing

__all__ = ["DECODERS", "LZ4_BLOCK", "LZ4_LEGACY", "SKIPPABLE", "Damaged", "TooMuch"]

PIECE, LARGEST_PIECE = 1 << 13, 1 << 20
"""Bytes fed at once. Decoders that can be told when to stop get more and more as a stream goes on:
a call lets other threads run, and waits for them when it ends. Of a stream that ends, the rest of a
piece is copied, so each begins with little."""
ZSTD_PIECE = 1 << 9
"""The same for zstd, which cannot be told: a block has 4 bytes and may unpack to 128 KiB, so a
piece to 16 MiB."""
SPARE, RATIO = 1 << 26, 64
"""A stream that unpacks to more bytes than SPARE, and to more than RATIO times its own, is a bomb,
or has much of the same in it. It is counted first, and kept when it is known not to be too much.
Kernels and modules come to 3 to 10 times."""
PART = 1 << 18
"""Bytes taken from a decoder at a time: few enough for a block that is used again and stays in the
cache. Of larger ones each is fresh memory, and twice: as the decoder's blocks, and joined."""
MEMORY = (1 << 27) + (1 << 21)
"""Bytes that the xz and lzma decoders may take, nearly all of it for the dictionary: kernels are
packed with one of 128 MiB (scripts/xz_wrap.sh), and `xz -9` takes 64."""
WINDOW = 1 << 27
"""Bytes of the largest zstd window: 128 MiB, that of `zstd --ultra -22`, as kernels are packed."""
LZ4_LEGACY = b"\x02\x21\x4c\x18"
LZ4_BLOCK = 8 << 20
"""Bytes that a block of `lz4 -l` unpacks to, at most (lib/decompress_unlz4.c)."""
SKIPPABLE = 0x184D2A50
"""First word, but for its last four bits, of a frame of zstd or lz4 that holds something else."""


class Damaged(Exception):
    """The stream cannot be unpacked."""


class TooMuch(Exception):
    """The stream unpacks to more than requested."""


class _Unpacked:
    """What comes out, up to ``limit`` bytes. What grows far beyond what went in is not kept, unless
    it was ``counted`` before: it may be too much."""

    def __init__(self, limit: int, *, counted: bool) -> None:
        self.held = bytearray()  # grows in place: fresh memory costs a tenth of the unpacking
        self.kept = True
        self._limit, self._size, self._counted = limit, 0, counted

    def add(self, part: bytes, taken: int) -> None:
        """Add what came out of the first ``taken`` bytes. Raises TooMuch."""
        self._size += len(part)
        if self._size > self._limit:
            raise TooMuch
        if self.kept:
            self.held += part
            if not self._counted and self._size > max(SPARE, RATIO * taken):
                self.held, self.kept = bytearray(), False


def _streams(
    data: memoryview,
    limit: int,
    kind: str,
    make: Callable[[], Any],
    damaged: type[Exception],
    *,
    first: int = PIECE,
    most_fed: int = LARGEST_PIECE,
    counted: bool = False,
) -> bytearray:
    """Stream after stream of one kind. ``make`` gives a decompressor as zlib and the others have
    it, ``damaged`` is what that raises. It is fed ``first`` bytes, and more up to ``most_fed``; one
    that always gets as many cannot be told when to stop. ``counted``: it is not too much."""
    out = _Unpacked(limit, counted=counted)
    at, decoder, size, bounded = 0, make(), first, first < most_fed
    with doing("unpacking", len(data)) as now:
        while True:
            piece = data[at : at + size]
            size = min(2 * size, most_fed)
            if not piece:
                raise Damaged("cut short")
            at += len(piece)
            now.done = at
            while True:
                try:
                    most = (PART,) if bounded else ()
                    part = decoder.decompress(piece, *most)
                except damaged as error:
                    raise Damaged(f"damaged: {error}") from None
                out.add(part, at)
                # zlib's; others keep it
                piece = memoryview(getattr(decoder, "unconsumed_tail", b""))
                if decoder.eof or not (piece or not getattr(decoder, "needs_input", True)):
                    break
            if not decoder.eof:
                continue
            at = _skip(data, at - len(decoder.unused_data or b""), kind)
            if at == len(data):
                break
            if kind == "lzma" or data[at : at + 3] != data[:3]:
                raise Damaged(f"{len(data) - at} bytes of trailing data")
            decoder, size = make(), first
    if out.kept:
        return out.held
    return _streams(data, limit, kind, make, damaged, first=first, most_fed=most_fed, counted=True)


def _skip(data: memoryview, at: int, kind: str) -> int:
    """Skip what may follow a stream and belongs to none: frames of another purpose,
    and xz's padding of zeros, four and four."""
    while kind in ("zstd", "lz4") and len(data) - at >= 8:
        magic, size = struct.unpack_from("<II", data, at)
        if magic & ~0xF != SKIPPABLE or size > len(data) - at - 8:
            break
        at += 8 + size
    for step in (4096, 4) if kind == "xz" else ():
        while data[at : at + step] == bytes(step):
            at += step
    return at


def _gzip(data: memoryview, limit: int, _: int | None) -> bytearray:
    return _streams(data, limit, "gzip", lambda: zlib.decompressobj(31), zlib.error)


def _bzip2(data: memoryview, limit: int, _: int | None) -> bytearray:
    import bz2

    return _streams(data, limit, "bzip2", bz2.BZ2Decompressor, OSError)


def _xz(data: memoryview, limit: int, _: int | None) -> bytearray:
    import lzma

    kind = "lzma" if data[0] == 0x5D else "xz"
    form = lzma.FORMAT_ALONE if kind == "lzma" else lzma.FORMAT_XZ

    def make() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(form, memlimit=MEMORY)

    return _streams(data, limit, kind, make, lzma.LZMAError)


def _zstd(data: memoryview, limit: int, size: int | None) -> bytes | bytearray:
    import zstandard

    unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    if not size:
        return _streams(
            data,
            limit,
            "zstd",
            unpacker.decompressobj,
            zstandard.ZstdError,
            first=ZSTD_PIECE,
            most_fed=ZSTD_PIECE,
        )
    try:  # the size is known: one frame, into one block of memory
        if zstandard.frame_content_size(data) not in (-1, size):
            raise Damaged("corrupt: its frame does not have the size in its header")
        return unpacker.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Damaged(f"corrupt or truncated: {error}") from None


def _lz4(data: memoryview, limit: int, _: int | None) -> bytearray:
    if data[:4] == LZ4_LEGACY:
        return _lz4_legacy(data, limit)
    import lz4.frame

    make = lz4.frame.LZ4FrameDecompressor
    return _streams(data, limit, "lz4", make, RuntimeError, first=PIECE, most_fed=PIECE)


def _lz4_legacy(data: memoryview, limit: int, *, counted: bool = False) -> bytearray:
    """magic | size of block (4 bytes) | block | size | block ... to the end; a further magic in
    place of a size begins the next stream."""
    import lz4.block

    out, at = _Unpacked(limit, counted=counted), 4
    with doing("unpacking", len(data)) as now:
        while at < len(data):
            if data[at : at + 4] == LZ4_LEGACY:
                at += 4
                continue
            size = int.from_bytes(data[at : at + 4], "little")
            if size > len(data) - at - 4:
                raise Damaged("cut short")
            try:
                block = data[at + 4 : at + 4 + size]
                part = lz4.block.decompress(block, uncompressed_size=LZ4_BLOCK)
            except lz4.block.LZ4BlockError as error:
                raise Damaged(f"damaged: {error}") from None
            at += 4 + size
            now.done = at
            out.add(part, at)
    return out.held if out.kept else _lz4_legacy(data, limit, counted=True)


DECODERS: dict[str, Callable[[memoryview, int, int | None], bytes | bytearray]] = {
    "gzip": _gzip,
    "bzip2": _bzip2,
    "lzma": _xz,
    "xz": _xz,
    "lz4": _lz4,
    "zstd": _zstd,
}
"""By kind: (stream, most bytes wanted, bytes announced or None) -> what it holds. Each raises
Damaged and TooMuch."""
