# SPDX-License-Identifier: MIT
"""The bzImage of IBM Z, which is in memory as it is in the file, from address 0 on.

    0x10008   'S390EP' 00 01
              decompressor; its global offset table has addresses of what follows
              relocations (4 bytes each), ascending      __vmlinux_relocs_64_start, ..._end
              stream, size that it unpacks to (4)        _compressed_start, _compressed_end
    page end  00 (24), 00 00 00 20 'zIPL'                the trailer for Secure Boot

(arch/s390/boot/vmlinux.lds.S, head.S, startup.c.) The numbers are big-endian, but the size that a
stream unpacks to is little-endian as everywhere (scripts/Makefile.lib). What is unpacked is the
kernel's memory without any header, linked at 1 MiB; to each word that a relocation names the
decompressor adds how far it moved the kernel, always. It is shown as an ELF file:

    | ELF header, one segment | memory | .rel.dyn, one entry for each relocation | section headers |

An entry that lost its type must lose its relocation too: a dropped record would not be null after
it. There is no room to shorten the list, so its relocation is led to where nothing is: between the
end of the memory and the end of its page. How far from the end says how far the lost place was
behind the one before it, so that it is found again:

    list      16e1f68  16e1f70  16e1f78        the second entry is gone
              16e1f68  1744108  16e1f78        the memory ends at 1744100, and 16e1f70 is 8 further
"""

from __future__ import annotations

import struct
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of, unpack
from ftpatch.image.container import Layer, Stream, Wrapper

__all__ = ["CONTAINER"]

MAGIC_AT, MAGIC = 0x10008, b"S390EP"


class IplImage(Wrapper):
    """A bzImage of IBM Z: a kernel, whatever it contains."""

    name = "bzImage (IPL)"
    order = 15
    is_kernel = True
    head = MAGIC_AT + len(MAGIC)
    names_image = True
    repacks = ("bzip2", "gzip", "lz4", "lzma", "xz", "zstd")
    holds_journal = False

    def begins(self, head: memoryview) -> bool:
        return head[MAGIC_AT : MAGIC_AT + len(MAGIC)].tobytes() == MAGIC

    def place(self, path: Path | str, data: memoryview) -> Stream:
        from ftpatch.image.ipl_parts import find_parts

        parts = find_parts(path, data)
        return Stream(parts.relocations, parts.last - parts.relocations)

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        from ftpatch.core.byte_order import BIG
        from ftpatch.image.ipl_parts import SIZE, as_elf, find_parts, found_again, said_size

        parts = find_parts(path, data)
        held = data[parts.stream : parts.end]
        kind = kind_of(held)
        assert kind is not None
        stream = held if kind == "gzip" else held[:-SIZE]
        memory = memoryview(unpack(path, stream, limit, said_size(data, parts.end)))
        entries = BIG.signed(data[parts.relocations : parts.relocated].tobytes(), SIZE)
        place, live = found_again(entries, len(memory))
        inside = memoryview(as_elf(memory, place, live)).toreadonly()
        size = parts.last - parts.relocations
        return Layer(self, kind, parts.relocations, size, data), inside

    def wrap(self, path: Path | str, layer: Layer, inside: memoryview, room: Stream) -> bytes:
        from ftpatch.core.byte_order import BIG
        from ftpatch.image.ipl_parts import SIZE, find_parts, from_elf, led_aside
        from ftpatch.image.kernel_streams import pack_kernel

        out = bytearray(layer.outer)
        parts = find_parts(path, layer.outer)
        if (layer.offset, layer.size) != (room.offset, room.size):
            raise InputError(path, "journal: of another file", "start from the original")
        memory, place, live = from_elf(path, inside)
        entries = led_aside(path, place, live, len(memory))
        out[parts.relocations : parts.relocated] = BIG.rows(entries, SIZE).tobytes()
        held = layer.outer[parts.stream : parts.end]
        behind = 0 if layer.compression == "gzip" else SIZE
        most = parts.last - parts.stream - behind
        try:
            stream = pack_kernel(path, layer.compression, held, memory, most)
        except InputError as error:  # what is extracted does not boot
            raise InputError(path, error.reason, "select fewer functions with -f") from None
        payload = stream + struct.pack("<I", len(memory))[:behind]
        out[parts.stream : parts.last] = payload.ljust(parts.last - parts.stream, b"\0")
        end = parts.stream + len(payload)
        out[parts.end_at : parts.end_at + 8] = BIG.packed(end, 8)
        return bytes(out)


CONTAINER: Wrapper = IplImage()
