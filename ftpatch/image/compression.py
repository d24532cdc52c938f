# SPDX-License-Identifier: MIT
"""Compressed streams: those that kernels are built with, and those that modules are stored in.

    gzip   1f 8b 08                   zstd   28 b5 2f fd
    bzip2  'B' 'Z' 'h' '1'..'9'       lz4    02 21 4c 18 (lz4 -l, as kernels use it), 04 22 4d 18
    xz     fd '7' 'z' 'X' 'Z' 00      lzo    89 'L' 'Z' 'O' 00 0d 0a 1a 0a
    lzma   properties, dictionary (4 bytes), unpacked size (8 bytes), 00

The kernel's own list is compressed_formats[] in lib/decompress.c; what it can read of modules is in
kernel/module/decompress.c, and what it makes of them in scripts/Makefile.modinst.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.decoders import DECODERS, Damaged, TooMuch
from ftpatch.io.activity import doing

__all__ = ["FOR_MODULES", "MAX_UNPACKED", "gzip_member", "kind_of", "pack", "unpack"]

MAX_UNPACKED = 1 << 29
"""Maximum unpacked size of a stream (bytes). The largest kernels have 80 MB, modules with their
debug information 200 MB."""
DICTIONARY = 1 << 20
"""Size of an xz dictionary that every kernel reads, as set by Makefile.modinst (bytes)."""
FOR_MODULES = ("gzip", "xz", "zstd")
"""Compressions that kernels and kmod unpack modules from, and that pack() makes."""
MAGIC = (
    ("gzip", b"\x1f\x8b\x08"),
    ("xz", b"\xfd7zXZ\0"),
    ("zstd", b"\x28\xb5\x2f\xfd"),
    ("lz4", b"\x02\x21\x4c\x18"),
    ("lz4", b"\x04\x22\x4d\x18"),
    ("lzo", b"\x89LZO\0\r\n\x1a\n"),
)
BZIP2 = (b"1AY&SY", b"\x17rE8P\x90")
"""The first block's magic (pi) or, in an empty stream, the end's (its square root)."""


def kind_of(data: memoryview) -> str | None:
    """Identify the compression: gzip, bzip2, lzma, xz, lzo, lz4 or zstd; None if it is none of
    them."""
    head = data[:16].tobytes()
    for kind, magic in MAGIC:
        if head.startswith(magic):
            return kind
    if head[:3] == b"BZh" and head[3:4] in b"123456789" and head[4:10] in BZIP2:
        return "bzip2"
    return "lzma" if _is_lzma(head) else None


def _is_lzma(head: bytes) -> bool:
    """Return whether 14 bytes begin an .lzma file, which has no magic: the properties that every
    packer sets (lc=3, lp=0, pb=2), a dictionary of 2^n or 2^n + 2^(n-1) bytes, no size or one below
    256 GiB, and the range coder's first byte. (xz's is_format_lzma() checks the same.)"""
    if len(head) < 14 or head[0] != 0x5D or head[13]:
        return False
    dictionary, size = int.from_bytes(head[1:5], "little"), int.from_bytes(head[5:13], "little")
    top = 1 << max(dictionary.bit_length() - 1, 0)
    known = size < 1 << 38 or size == (1 << 64) - 1
    return known and dictionary >= 4096 and dictionary in (top, top | top >> 1)


def unpack(
    path: Path | str, data: memoryview, limit: int = MAX_UNPACKED, size: int | None = None
) -> bytes | bytearray:
    """Unpack a compressed stream. ``data``  must be the stream and nothing else; it
    may be several streams in a row, as the packers' own tools take them, and xz's may end in zeros.

    ``size`` is what the container says that the stream unpacks to, in bytes: then it must.

    Raises InputError for one that is no stream, is truncated, is damaged, has trailing data, or
    unpacks to more than ``limit`` bytes.
    """
    kind = kind_of(data)
    if kind is None:
        raise InputError(path, "not compressed with gzip, bzip2, lzma, xz, lz4 or zstd")
    if kind not in DECODERS:
        raise InputError(path, f"compressed with {kind}, which is not supported")
    too_much = InputError(path, f"{kind}: unpacks to more than {limit} bytes")
    if size is not None and size > limit:
        raise too_much
    try:
        out = DECODERS[kind](data, limit if size is None else size, size)
    except Damaged as error:
        raise InputError(path, f"{kind}: {error}") from None
    except TooMuch:
        if size is None:
            raise too_much from None
        more = f"unpacks to more than the {size} bytes in its header"
        raise InputError(path, f"{kind}: {more}") from None
    if size is not None and len(out) != size:
        raise InputError(path, f"{kind}: unpacks to {len(out)} bytes, but its header says {size}")
    return out


def pack(kind: str, data: bytes | memoryview) -> bytes:
    """Compress a module (gzip, xz or zstd) so that the kernel's own decompressor reads it.

    * gzip: no optional field but a name may be in its header (module_gzip_header_len()). Here it
      has neither name nor time, so the same data gives the same bytes.
    * xz: the kernel checks CRC32 only, and allocates the dictionary.
    * zstd: one frame (the kernel stops behind the first), whose header has the size; the kernel
      allocates the window that it names. RFC 8878 asks every decoder to take 8 MiB; level 3 has 2.

    Raises ValueError for another kind.
    """
    with doing("compressing"):  # in one go: in parts, other bytes may come out
        if kind == "gzip":
            packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
            return gzip_member(packer.compress(data) + packer.flush(), data)
        if kind == "xz":
            import lzma

            filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": DICTIONARY}]
            return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC32, filters=filters)
        if kind == "zstd":
            import zstandard

            return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)
    raise ValueError(kind)


def gzip_member(body: bytes, data: bytes | memoryview) -> bytes:
    """A gzip file of ``body``, which is ``data`` deflated: without a name or a time, so the same
    data gives the same bytes. The kernel's own reader skips nothing but a name (__gunzip() in
    lib/decompress_inflate.c)."""
    # magic, deflate | no flags | no time | best compression | Unix
    head = b"\x1f\x8b\x08\x00" + bytes(4) + b"\x02\x03"
    return head + body + struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFF_FFFF)
