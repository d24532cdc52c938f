# SPDX-License-Identifier: MIT
"""The zImage of 32-bit ARM, which runs wherever it is loaded.

    0x24  0x016f2818
    0x28  address to load it at, 0 for any; 0x2c its end (4 bytes each)
    0x30  0x04030201 (little-endian)
    0x34  0x45454545
    0x38  where the table of tags is (4): size in words, tag, ...      v4.15 and later

    'KLSZ'  where the size that the stream unpacks to is (4), size of .bss (4), and since v5.11
            TEXT_OFFSET, size of the decompressor's heap

arch/arm/boot/compressed/head.S and vmlinux.lds.S. The zImage is linked at 0, and its global offset
table has addresses of what is in it, among them that of the stream. The last four bytes of that are
the size of what it unpacks to, wherever the stream ends:

    | decompressor | stream | filler | size | global offset table |

What it unpacks to is the kernel's memory without any header, linked TEXT_OFFSET behind PAGE_OFFSET.
It is shown as an ELF file: see ../zimage_parts.py.
"""

from __future__ import annotations

import struct
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of, unpack
from ftpatch.image.container import Layer, Stream, Wrapper

__all__ = ["CONTAINER"]

MAGIC_AT = 0x24
MAGIC, LITTLE = 0x016F_2818, 0x0403_0201
HEADER = 0x40
SIZE = 4
"""Bytes of the unpacked size."""


class ZImage(Wrapper):
    """A zImage: a kernel, whatever it contains."""

    name = "zImage"
    order = 16
    is_kernel = True
    head = HEADER
    names_image = True
    repacks = ("xz",)
    holds_journal = False

    def begins(self, head: memoryview) -> bool:
        if len(head) < HEADER:
            return False
        magic, _, _, order = struct.unpack_from("<IIII", head, MAGIC_AT)
        return (magic, order) == (MAGIC, LITTLE)

    def place(self, path: Path | str, data: memoryview) -> Stream:
        from ftpatch.image.zimage_parts import find_stream

        return find_stream(path, data)

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        from ftpatch.image.zimage_parts import as_elf, exactly, offset_and_bss

        stream = self.place(path, data)
        held = data[stream.offset : stream.offset + stream.size]
        kind = kind_of(held)
        assert kind is not None
        whole = exactly(kind, data, stream, limit)
        memory = memoryview(unpack(path, whole, limit, stream.unpacked))
        inside = memoryview(as_elf(path, memory, *offset_and_bss(data))).toreadonly()
        return Layer(self, kind, stream.offset, stream.size, data), inside

    def wrap(self, path: Path | str, layer: Layer, inside: memoryview, room: Stream) -> bytes:
        from ftpatch.image.kernel_streams import pack_kernel
        from ftpatch.image.pe import unsigned
        from ftpatch.image.zimage_parts import from_elf

        if (layer.offset, layer.size) != (room.offset, room.size):
            raise InputError(path, "journal: of another file", "start from the original")
        out = unsigned(layer.outer)
        memory = from_elf(path, inside)
        held = layer.outer[layer.offset : layer.offset + layer.size]
        try:
            stream = pack_kernel(path, layer.compression, held, memory, layer.size)
        except InputError as error:  # what is extracted does not boot
            raise InputError(path, error.reason, "select fewer functions with -f") from None
        end = layer.offset + layer.size
        out[layer.offset : end] = stream.ljust(layer.size, b"\0")
        return bytes(out)


CONTAINER: Wrapper = ZImage()
