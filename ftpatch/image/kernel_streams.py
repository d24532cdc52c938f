# SPDX-License-Identifier: MIT
"""Compression of a kernel that has to fit where another stream was.

Between the decompressor's parts there is room for just the stream that the build put there, so the
build's own settings come first (cmd_gzip, cmd_xzkern, cmd_zstd22, ... in scripts/Makefile.lib):

    gzip    gzip -n -9                  lzma   lzma -9
    bzip2   bzip2 -9                    lz4    lz4 -l -9
    xz      the filters, the dictionary and the bits of the stream that was there (lc, lp and pb:
            scripts/xz_wrap.sh)
    zstd    zstd -22 --ultra, with the window of the frame that was there

then stronger ones and, where the stream must not become much shorter, weaker ones.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ftpatch.errors import InputError
from ftpatch.image.compression import gzip_member
from ftpatch.image.decoders import LZ4_BLOCK, LZ4_LEGACY
from ftpatch.io.activity import doing

__all__ = ["pack_kernel"]

BRANCHES = (0x04, 0x05, 0x06, 0x07, 0x08, 0x09)
"""IDs of the filters of branches that Python can set: x86, PowerPC, IA-64, ARM, ARM-Thumb, SPARC
(The .xz File Format, 5.3.2)."""
LZMA2 = 0x21
NEW_BITS, MAX_BITS = 0xC0, 224
"""Control byte of the chunks that have lc, lp and pb, and the largest such value."""


def pack_kernel(
    path: Path | str, kind: str, held: memoryview, data: memoryview, most: int, least: int = 0
) -> bytes:
    """Compress ``data`` as the stream ``held``, of that kind, to no more than ``most`` bytes and no
    fewer than ``least``. Raises InputError with the sizes where no setting does."""
    sizes = []
    for packer in PACKED[kind](held):
        with doing("compressing"):
            stream = packer(data)
        if least <= len(stream) <= most:
            return stream
        sizes.append(len(stream))
        if len(stream) > most and len(sizes) > 1 and sizes[-1] >= sizes[-2] > most:
            break  # it gets no smaller
    if min(sizes) > most:
        more = min(sizes) - most
        raise InputError(
            path,
            f"{kind}: the changed kernel takes {min(sizes)} bytes, {more} more than there is room "
            "for in this image",
            "select fewer functions, or use `ftpatch extract` and boot the kernel inside",
        )
    raise InputError(
        path,
        f"{kind}: no setting gives a stream between {least} and {most} bytes, which this image "
        f"needs to unpack itself in place (they give {min(sizes)} to {max(sizes)})",
        "use `ftpatch extract` and boot the kernel inside",
    )


Packer = Callable[[memoryview], bytes]


def _gzip(held: memoryview) -> Iterator[Packer]:
    def at(level: int) -> Packer:
        def packer(data: memoryview) -> bytes:
            body = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
            return gzip_member(body.compress(data) + body.flush(), data)

        return packer

    def strongest(data: memoryview) -> bytes:
        import deflate

        return gzip_member(bytes(deflate.deflate_compress(data, 12)), data)

    yield at(9)
    yield strongest
    yield from (at(level) for level in (7, 6, 5, 4, 3, 2, 1))


def _xz(held: memoryview) -> Iterator[Packer]:
    import lzma

    check, branches, dictionary = _xz_settings(held)
    bits = _xz_bits(held)

    def at(preset: int, **options: int) -> Packer:
        chain: list[dict[str, Any]] = [
            *({"id": one} for one in branches),
            {"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": dictionary, **bits, **options},
        ]
        return lambda data: lzma.compress(data, lzma.FORMAT_XZ, check, filters=chain)

    yield at(6)
    yield at(9 | lzma.PRESET_EXTREME)
    yield at(9 | lzma.PRESET_EXTREME, nice_len=273, depth=1000)
    yield from (at(preset) for preset in (5, 4, 3, 2, 1, 0))


def _xz_settings(held: memoryview) -> tuple[int, list[int], int]:
    """Check, branch filters and dictionary size of a stream's first block (The .xz File Format, 2.1
    and 3.1): those that this kernel's own reader is known to have. A filter that Python cannot set
    is left out."""
    head = held[12:1036].tobytes()
    branches: list[int] = []
    dictionary = 1 << 25
    if not head[0]:  # the index: a stream without a block
        return held[7] & 0xF, branches, dictionary
    flags, at = head[1], 2
    for present in (flags & 0x40, flags & 0x80):
        if present:
            _, at = _number(head, at)
    for _ in range((flags & 3) + 1):
        one, at = _number(head, at)
        size, at = _number(head, at)
        if one == LZMA2 and size == 1:
            bits = min(head[at], 39)
            dictionary = min((2 | bits & 1) << bits // 2 + 11, 1 << 27)
        elif one in BRANCHES:
            branches.append(one)
        at += size
    return held[7] & 0xF, branches, dictionary


def _xz_bits(held: memoryview) -> dict[str, int]:
    """lc, lp and pb of a stream's first block, which its first LZMA2 chunk has: control, unpacked
    size (2), packed size (2), (pb * 5 + lp) * 9 + lc. Empty if that is not compressed."""
    start = 12 + 4 * (held[12] + 1) if held[12] else len(held)
    chunk = held[start : start + 6].tobytes()
    if len(chunk) < 6 or chunk[0] < NEW_BITS or chunk[5] > MAX_BITS:
        return {}
    rest, lc = divmod(chunk[5], 9)
    pb, lp = divmod(rest, 5)
    return {"lc": lc, "lp": lp, "pb": pb}


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A multibyte integer (1.2), and where it ends."""
    value = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at


def _lzma(held: memoryview) -> Iterator[Packer]:
    import lzma

    for preset in (9, 9 | lzma.PRESET_EXTREME, 6, 5, 4, 3, 2, 1, 0):
        yield partial(lzma.compress, format=lzma.FORMAT_ALONE, preset=preset)


def _bzip2(held: memoryview) -> Iterator[Packer]:
    import bz2

    for level in range(9, 0, -1):
        yield partial(bz2.compress, compresslevel=level)


def _zstd(held: memoryview) -> Iterator[Packer]:
    import zstandard

    window = zstandard.get_frame_parameters(held).window_size

    def at(level: int) -> Packer:
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level,
            window_log=max(10, min((window - 1).bit_length(), 27)),
            write_checksum=True,
            write_content_size=False,
        )
        return zstandard.ZstdCompressor(compression_params=parameters).compress

    yield from (at(level) for level in (22, 21, 20, 19, 18, 17, 16, 12, 9, 6, 3))


def _lz4(held: memoryview) -> Iterator[Packer]:
    import lz4.block

    def at(level: int) -> Packer:
        how = {"mode": "high_compression", "compression": level} if level else {}

        def packer(data: memoryview) -> bytes:
            parts = [LZ4_LEGACY]
            for start in range(0, len(data), LZ4_BLOCK):
                piece = data[start : start + LZ4_BLOCK]
                block = lz4.block.compress(piece, store_size=False, **how)
                parts += [struct.pack("<I", len(block)), block]
            return b"".join(parts)

        return packer

    yield from (at(level) for level in (9, 12, 8, 7, 6, 5, 4, 3, 0))


PACKED: dict[str, Callable[[memoryview], Iterator[Packer]]] = {
    "gzip": _gzip,
    "xz": _xz,
    "lzma": _lzma,
    "bzip2": _bzip2,
    "zstd": _zstd,
    "lz4": _lz4,
}
"""By kind: the stream that was there -> what compresses, in the order to be tried."""
