# SPDX-License-Identifier: MIT
"""EFI zboot: an Image that unpacks itself as an EFI program (arm64, riscv64, loongarch64).

    0x00  'M' 'Z' 00 00
    0x04  'zimg'
    0x08  payload offset (4 bytes)
    0x0c  payload size (4 bytes), without the unpacked size that follows all streams but gzip's
    0x18  compression, ended by a NUL byte
    0x38  cd 23 82 81 (LINUX_PE_MAGIC)

drivers/firmware/efi/libstub/zboot-header.S and Makefile.zboot. What is inside is padded with zeros
to the size that it takes in memory. Where the payload ends is a constant in the decompressor
(_gzdata_end, zboot.lds), and the last four bytes before it are the size of what it unpacks to:

    | stream | filler | size |
    ^ payload offset         ^ _gzdata_end
"""

from __future__ import annotations

import struct
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of
from ftpatch.image.container import Layer, Stream, Wrapper, unpack_stream
from ftpatch.image.decoders import SKIPPABLE
from ftpatch.image.pe import unsigned

__all__ = ["CONTAINER"]

HEADER = 0x40
SIZE = 4
"""Bytes of the unpacked size."""
FRAME = struct.Struct("<II")
"""Head of a frame to be skipped: SKIPPABLE, size (RFC 8878, 3.1.2)."""
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
    repacks = ("gzip", "lzma", "xz", "zstd")
    holds_journal = False

    def begins(self, head: memoryview) -> bool:
        header = head[:HEADER].tobytes()
        return len(header) == HEADER and header[:2] == b"MZ" and header[4:8] == b"zimg"

    def place(self, path: Path | str, data: memoryview) -> Stream:
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
                f"the zboot image's header says {said}, its payload is "
                f"{kind or 'of unknown format'}",
            )
        return Stream(offset, size)

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        return unpack_stream(self, path, data, self.place(path, data), limit)

    def wrap(self, path: Path | str, layer: Layer, inside: memoryview, room: Stream) -> bytes:
        from ftpatch.image.kernel_streams import pack_kernel

        out = unsigned(layer.outer)
        behind = 0 if layer.compression == "gzip" else SIZE
        start, last = room.offset, room.offset + room.size + behind
        if start != layer.offset or room.size < layer.size or last > len(out):
            raise InputError(path, "journal: of another file", "start from the original")
        held = layer.outer[start : start + layer.size]
        stream = pack_kernel(path, layer.compression, held, inside, last - SIZE - start)
        left = last - SIZE - start - len(stream)
        if layer.compression == "zstd" and 0 < left < FRAME.size:
            raise InputError(path, "zstd: the changed kernel leaves too little room for a frame")
        out[start : last - SIZE] = stream + _filler(layer.compression, left)
        struct.pack_into("<I", out, 12, len(stream))
        return bytes(out)


def _filler(kind: str, size: int) -> bytes:
    """What the reader of a stream may find behind it: zeros, but in zstd a frame to be skipped."""
    if kind == "zstd" and size:
        return FRAME.pack(SKIPPABLE, size - FRAME.size) + bytes(size - FRAME.size)
    return bytes(size)


CONTAINER: Wrapper = Zboot()
