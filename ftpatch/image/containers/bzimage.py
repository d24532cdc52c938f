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
"""

from __future__ import annotations

import struct
from pathlib import Path

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of
from ftpatch.image.container import Layer, Stream, Wrapper, unpack_stream

__all__ = ["CONTAINER"]

HEADER = 0x250
"""Size up to the end of the last field read here."""
SECTOR = 512
NAMES_PAYLOAD = 0x208
"""The first version that has payload_offset and payload_length."""


class BzImage(Wrapper):
    """A bzImage: a kernel, whatever it contains."""

    name = "bzImage"
    order = 10
    is_kernel = True
    head = HEADER
    names_image = True

    def begins(self, head: memoryview) -> bool:
        header = head[:HEADER].tobytes()
        return (
            len(header) == HEADER
            and header[0x1FE:0x206] == b"\x55\xaa" + header[0x200:0x202] + b"HdrS"
        )

    def unwrap(self, path: Path | str, data: memoryview, limit: int) -> tuple[Layer, memoryview]:
        return unpack_stream(self, path, data, _stream(path, data), limit)


def _stream(path: Path | str, data: memoryview) -> Stream:
    """Find the compressed stream. Raises InputError for a file that is too old or truncated."""
    header = data[:HEADER].tobytes()
    (version,) = struct.unpack_from("<H", header, 0x206)
    if version < NAMES_PAYLOAD:
        old = f"{version >> 8}.{version & 0xFF:02}"
        raise InputError(path, f"unsupported boot protocol {old}: no payload")
    start, size = struct.unpack_from("<II", header, 0x248)
    offset = ((header[0x1F1] or 4) + 1) * SECTOR + start
    if size < 4 or offset + size > len(data):
        raise InputError(
            path,
            f"truncated: the bzImage's payload at {offset:#x} needs {size:#x} bytes, "
            f"but the file has only {len(data):#x}",
        )
    stream = data[offset : offset + size]
    (unpacked,) = struct.unpack("<I", stream[-4:].tobytes())
    return Stream(offset, size if kind_of(stream) == "gzip" else size - 4, unpacked)


CONTAINER: Wrapper = BzImage()
