# SPDX-License-Identifier: MIT
"""x86's bzImage (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").

    0x1f1  setup_sects (1 byte)   sectors of setup code behind the first one; 0 means 4
    0x1fe  55 aa
    0x202  'HdrS'
    0x206  version (2 bytes)      2.08 (v2.6.26) and later name the payload
    0x248  payload_offset (4)     from the beginning of the protected-mode code
    0x24c  payload_length (4)

The payload is a compressed ELF file and whatever arch/x86/boot/compressed/Makefile puts behind it
(vmlinux.relocs). Its last four bytes are the size of what it unpacks to: gzip has them as part of
its format, and behind all others the build appends them (mkpiggy.c).

The decompressor reads input_len and output_len, which stand side by side in its .rodata
(mkpiggy.c): payload_length, and what the payload unpacks to. It unpacks in place: the payload lies
at the end of the memory that its contents are written to from the front.

    | output ->                                     |
    |                 | payload ->          | extra |

What is written must not overtake what is read. For payloads that unpack unevenly the build leaves
``extra``, the 256th part of output_len and 64 KiB or more (ZO_z_extra_bytes, header.S); one that
ends earlier than the build's takes as much of that. So it may be shorter by the 256th part, and no
more.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of
from ftpatch.image.container import Layer, Stream, Wrapper, unpack_stream
from ftpatch.image.pe import unsigned

__all__ = ["CONTAINER"]

HEADER = 0x250
"""Size up to the end of the last field read here."""
SECTOR = 512
NAMES_PAYLOAD = 0x208
"""The first version that has payload_offset and payload_length."""
SPARE = 8
"""log2 of the part of the contents by which a stream may be shorter than the build's."""


class BzImage(Wrapper):
    """A bzImage: a kernel, whatever it contains."""

    name = "bzImage"
    order = 10
    is_kernel = True
    head = HEADER
    names_image = True
    repacks = ("bzip2", "gzip", "lz4", "lzma", "xz", "zstd")
    holds_journal = False

    def begins(self, head: memoryview) -> bool:
        header = head[:HEADER].tobytes()
        return (
            len(header) == HEADER
            and header[0x1FE:0x206] == b"\x55\xaa" + header[0x200:0x202] + b"HdrS"
        )

    def place(self, path: Path | str, data: memoryview) -> Stream:
        header = data[:HEADER].tobytes()
        (version,) = struct.unpack_from("<H", header, 0x206)
        if version < NAMES_PAYLOAD:
            old = f"{version >> 8}.{version & 0xFF:02}"
            raise InputError(path, f"unsupported boot protocol {old}: no payload")
        start, size = struct.unpack_from("<II", header, 0x248)
        offset = _protected(header) + start
        if size < 4 or offset + size > len(data):
            raise InputError(
                path,
                f"truncated: the bzImage's payload at {offset:#x} needs {size:#x} bytes, "
                f"but the file has only {len(data):#x}",
            )
        stream = data[offset : offset + size]
        (unpacked,) = struct.unpack("<I", stream[-4:].tobytes())
        return Stream(offset, size - _behind(kind_of(stream)), unpacked)

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        return unpack_stream(self, path, data, self.place(path, data), limit)

    def wrap(self, path: Path | str, layer: Layer, inside: memoryview, room: Stream) -> bytes:
        from ftpatch.image.kernel_streams import pack_kernel

        out = unsigned(layer.outer)
        behind = _behind(layer.compression)
        start, end = layer.offset, layer.offset + layer.size + behind
        lengths = _lengths(path, out, start, end)
        last = room.offset + room.size + behind
        if room.offset != start or any(out[end:last]):
            raise InputError(path, "journal: of another file", "start from the original")
        summed = _sum_place(out)
        most, least = last - start - behind, room.size - (len(inside) >> SPARE)
        held = layer.outer[start : start + layer.size]
        stream = pack_kernel(path, layer.compression, held, inside, most, least)
        payload = stream + struct.pack("<I", len(inside))[:behind]
        out[start:last] = payload + bytes(last - start - len(payload))
        struct.pack_into("<II", out, lengths, len(payload), len(inside))
        struct.pack_into("<I", out, 0x24C, len(payload))
        if summed:
            struct.pack_into("<I", out, summed, ~zlib.crc32(out[:summed]) & 0xFFFF_FFFF)
        return bytes(out)


def _protected(header: bytes | bytearray) -> int:
    """File offset of the protected-mode code."""
    return ((header[0x1F1] or 4) + 1) * SECTOR


def _behind(kind: str | None) -> int:
    """Bytes of the size behind a stream of this kind."""
    return 0 if kind == "gzip" else 4


def _lengths(path: Path | str, data: bytearray, start: int, end: int) -> int:
    """File offset of input_len, beside output_len. Raises InputError unless it is there once."""
    (unpacked,) = struct.unpack_from("<I", data, end - 4)
    pair = struct.pack("<II", end - start, unpacked)
    found = [at for at in (data.find(pair, 0, start), data.find(pair, end)) if at >= 0]
    if len(found) != 1 or data.find(pair, found[0] + 1, len(data)) in range(end, len(data)):
        raise InputError(
            path,
            "the decompressor does not say how long its payload is",
            "use `ftpatch extract` and boot the kernel inside",
        )
    return found[0]


def _sum_place(data: bytearray) -> int:
    """File offset of the CRC-32 that makes that of the image 0 (boot.rst, "The Image Checksum");
    0 where there is none, or where it does not hold: signing changes the header."""
    (paragraphs,) = struct.unpack_from("<I", data, 0x1F4)
    end = _protected(data) + 16 * paragraphs
    holds = HEADER < end <= len(data) and zlib.crc32(data[:end]) == 0xFFFF_FFFF
    return end - 4 if holds else 0


CONTAINER: Wrapper = BzImage()
