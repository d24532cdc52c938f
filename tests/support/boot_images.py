# SPDX-License-Identifier: MIT
"""Bootable kernels made by hand, for tests: headers around a compressed stream."""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["SETUP", "bzimage", "ipl_image", "zboot", "zimage"]

SETUP = 5 * 512
"""Bytes before the protected-mode code of a bzImage."""


def bzimage(
    stream: bytes, version: int = 0x20F, setup: int = 4, length: int | None = None
) -> bytes:
    """A bzImage around a stream; ``setup`` is setup_sects, ``length`` payload_length."""
    header = bytearray(SETUP)
    header[:2] = b"MZ"
    header[0x1F1] = setup
    header[0x1FE:0x206] = b"\x55\xaa\xeb\x66HdrS"
    size = len(stream) if length is None else length
    struct.pack_into("<H", header, 0x206, version)
    struct.pack_into("<II", header, 0x248, 100, size)
    lengths = struct.pack("<I", size) + stream[-4:]  # input_len, output_len
    return bytes(header) + b"\x90" * 92 + lengths + stream + b"decompressor" * 20


def ipl_image(stream: bytes, relocations: Sequence[int], room: int = 0) -> bytes:
    """A bzImage of IBM Z around a stream with its size behind it, and ``room`` bytes more."""
    head = bytearray(0x11000)
    head[0x10008:0x10010] = b"S390EP\0\1"
    listed = struct.pack(f">{len(relocations)}I", *relocations)
    start = len(head) + len(listed)
    at = start + -start % 8
    # The decompressor's addresses of the list and of the stream, from the start and to the end.
    struct.pack_into(">4Q", head, 0x10F00, len(head), start, at, at + len(stream))
    out = bytes(head) + listed + bytes(at - start) + stream + bytes(room)
    trailer = bytes(24) + b"\0\0\0\x20zIPL"
    return out + bytes(-(len(out) + len(trailer)) % 4096) + trailer


def zboot(stream: bytes, size: int, word: str, offset: int = 0x1000) -> bytes:
    """An EFI zboot image around a stream, whose header says ``size`` and ``word``."""
    header = bytearray(0x1000)
    struct.pack_into("<HH4sII", header, 0, 0x5A4D, 0, b"zimg", offset, size)
    header[24 : 24 + len(word)] = word.encode()
    header[56:60] = b"\xcd\x23\x82\x81"
    return bytes(header) + stream + b"efi stub" * 20


def zimage(stream: bytes, unpacked: int, room: int = 0) -> bytes:
    """A zImage around a stream that says what it unpacks to, with ``room`` bytes more; gzip's own
    size is not to be in it."""
    header = bytearray(0x1000)
    struct.pack_into("<4I", header, 0x24, 0x016F_2818, 0, 0, 0x0403_0201)
    struct.pack_into("<II", header, 0x34, 0x4545_4545, 0x100)
    end = len(header) + len(stream) + room
    struct.pack_into("<5I", header, 0x100, 5, 0x5A53_4C4B, end, 0x8000, 0x8000)
    table = struct.pack("<4I", 0, len(header), 0, 0)
    payload = stream + bytes(room) + struct.pack("<I", unpacked)
    return bytes(header) + payload + bytes(-end % 4) + table
