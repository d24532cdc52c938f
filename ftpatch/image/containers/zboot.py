# SPDX-License-Identifier: MIT
"""EFI zboot: an Image that unpacks itself as an EFI program (arm64, riscv64, loongarch64).

    0x00  'M' 'Z' 00 00
    0x04  'zimg'
    0x08  payload offset (4 bytes)
    0x0c  payload size (4 bytes), without the unpacked size that follows all streams but gzip's
    0x18  compression, ended by a NUL byte
    0x38  cd 23 82 81 (LINUX_PE_MAGIC)

drivers/firmware/efi/libstub/zboot-header.S and Makefile.zboot. What is inside is padded with zeros
to the size that it takes in memory.
"""

from __future__ import annotations

import struct
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of
from ftpatch.image.container import Layer, Stream, Wrapper, unpack_stream

__all__ = ["CONTAINER"]

HEADER = 0x40
TYPES = {
    "gzip": "gzip",
    "lz4": "lz4",
    "lzma": "lzma",
    "lzo": "lzo",
    "xz": "xz",
    "xzkern": "xz",
    "zstd": "zstd",
    "zstd22": "zstd",
}
"""Makefile.zboot's names for kind_of()'s results."""


class Zboot(Wrapper):
    """EFI zboot."""

    name = "zboot"
    order = 20
    head = HEADER

    def begins(self, head: memoryview) -> bool:
        header = head[:HEADER].tobytes()
        return len(header) == HEADER and header[:2] == b"MZ" and header[4:8] == b"zimg"

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        return unpack_stream(self, path, data, _stream(path, data), limit)


def _stream(path: Path | str, data: memoryview) -> Stream:
    """Find the compressed stream. Raises InputError for a file that is truncated, or whose payload
    contradicts its header."""
    header = data[:HEADER].tobytes()
    offset, size = struct.unpack_from("<II", header, 8)
    if offset < HEADER or offset + size > len(data):
        raise InputError(
            path,
            f"truncated: the zboot image's payload at {offset:#x} needs {size:#x} bytes, "
            f"but the file has only {len(data):#x}",
        )
    said = header[0x18:0x38].split(b"\0")[0].decode("ascii", "backslashreplace")
    kind = kind_of(data[offset : offset + size])
    if said in TYPES and TYPES[said] != kind:
        raise InputError(
            path,
            f"the zboot image's header says {said}, its payload is {kind or 'of unknown format'}",
        )
    return Stream(offset, size)


CONTAINER: Wrapper = Zboot()
