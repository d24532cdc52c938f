# SPDX-License-Identifier: MIT
"""The parts of a zImage, and its kernel as an ELF file: see containers/zimage.py.

    | ELF header, one segment | memory | names | section headers: .text, .init.text |

The kernel's PAGE_OFFSET is one of four (VMSPLIT in arch/arm/Kconfig): that at which most of its
pointers lead to strings.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of
from ftpatch.image.container import Stream

__all__ = ["as_elf", "find_stream", "from_elf", "offset_and_bss", "exactly"]

TABLE_AT: Final = 0x34
TABLE: Final = 0x4545_4545
KLSZ: Final = 0x5A53_4C4B
SIZE: Final = 4
"""Bytes of the unpacked size behind a stream."""
DEFAULT_OFFSET: Final = 0x8000
"""TEXT_OFFSET where the table does not say it."""
PAGE_OFFSETS: Final = (0xC000_0000, 0xB000_0000, 0x8000_0000, 0x4000_0000)
LETTERS: Final = 4
"""Printable characters that begin a string."""
LEAST: Final = 64
"""Minimum pointers to strings, twice as many as at any other PAGE_OFFSET."""
PAGE: Final = 4096
MACHINE: Final = 40
"""EM_ARM."""
HEADER = struct.Struct("<4sBBB9xHHIIIIIHHHHHH")
SEGMENT = struct.Struct("<IIIIIIII")
FLAGS: Final = 0x0500_0000
"""EF_ARM_EABI_VER5."""
PART: Final = 1 << 24
"""Bytes that are unpacked at a time, to find where a stream ends."""
ET_EXEC, PT_LOAD, RWX = 2, 1, 7


def find_stream(path: Path | str, data: memoryview) -> Stream:
    """Find the stream by the table of tags, and by the address that the global offset table has of
    it. Raises InputError."""
    tag = _tag(data)
    if tag is None:
        raise InputError(path, "a zImage of a kernel before v4.15", "use the vmlinux of the build")
    end = tag[0]
    if not TABLE_AT < end <= len(data) - SIZE:
        raise InputError(
            path,
            f"truncated: the zImage's payload ends at {end + SIZE:#x}, but the file has only "
            f"{len(data):#x} bytes",
        )
    words = np.frombuffer(data[: len(data) // 4 * 4], "<u4").astype(np.int64)
    after, before = words[-(-(end + SIZE) // 4) :], words[: end // 4]
    for held in (after, before):
        for start in np.unique(held[(held > TABLE_AT) & (held < end)]).tolist():
            if kind_of(data[start : start + 16]) is not None:
                (unpacked,) = struct.unpack_from("<I", data, end)
                return Stream(start, end - start, unpacked)
    raise InputError(
        path, "the decompressor does not tell where its payload is", "use the vmlinux of the build"
    )


def exactly(kind: str, data: memoryview, stream: Stream, limit: int) -> memoryview:
    """The bytes of a stream, without what ftpatch fills up behind a shorter one, but for zeros that
    xz allows. gzip ends with the size itself, where the build put it. What is damaged, or unpacks
    to more than it says or than ``limit`` bytes, is left for unpack() to refuse."""
    end = stream.offset + stream.size
    if kind != "gzip":
        return data[stream.offset : end]
    held = data[stream.offset : end + SIZE]
    left = stream.unpacked or 0
    reader, fed = zlib.decompressobj(16 + zlib.MAX_WBITS), bytes(held if left <= limit else b"")
    try:
        while fed and left >= 0:
            left -= len(reader.decompress(fed, PART))
            fed = reader.unconsumed_tail
    except zlib.error:
        return held
    return held[: len(held) - len(reader.unused_data)] if reader.eof else held


def offset_and_bss(data: memoryview) -> tuple[int, int]:
    """TEXT_OFFSET and the size of .bss (bytes)."""
    _, bss, offset = _tag(data) or (0, 0, 0)
    return offset or DEFAULT_OFFSET, bss


def _tag(data: memoryview) -> tuple[int, int, int] | None:
    """Of KLSZ: where the unpacked size is, size of .bss, TEXT_OFFSET (0 if it is not there)."""
    mark, at = struct.unpack_from("<II", data, TABLE_AT)
    if mark != TABLE:
        return None
    while at + 8 <= len(data):
        count, tag = struct.unpack_from("<II", data, at)
        if count < 2 or at + 4 * count > len(data):
            return None
        if tag == KLSZ and count >= 4:
            held = struct.unpack_from(f"<{count - 2}I", data, at + 8)
            return held[0], held[1], held[2] if count > 4 else 0
        at += 4 * count
    return None


def as_elf(path: Path | str, memory: memoryview, offset: int, bss: int) -> bytearray:
    """The kernel's memory, linked ``offset`` bytes behind PAGE_OFFSET. Raises InputError where that
    is unknown."""
    base = _page_offset(path, memory, offset) + offset
    return _elf(memory, base, bss)


def _elf(memory: memoryview, base: int, bss: int) -> bytearray:
    out = bytearray(PAGE)
    ident = b"\x7fELF", 1, 1, 1  # 32 bits, little-endian, version
    about = ET_EXEC, MACHINE, 1, base, HEADER.size, 0, FLAGS
    HEADER.pack_into(out, 0, *ident, *about, HEADER.size, SEGMENT.size, 1, 0, 0, 0)
    place = PT_LOAD, PAGE, base, base, len(memory), len(memory) + bss, RWX, PAGE
    SEGMENT.pack_into(out, HEADER.size, *place)
    return out + memory


def from_elf(path: Path | str, inside: memoryview) -> memoryview:
    """The memory of what as_elf() made. Raises InputError for anything else: code that was laid in
    has nowhere to go."""
    if len(inside) >= PAGE:
        _, _, base, _, size, extent, _, _ = SEGMENT.unpack_from(inside, HEADER.size)
        memory = inside[PAGE : PAGE + size]
        if extent >= size and _elf(memory, base, extent - size) == inside:
            return memory
    raise InputError(path, "nothing but the memory of this kernel can be changed")


def _page_offset(path: Path | str, memory: memoryview, offset: int) -> int:
    data = np.frombuffer(memory, np.uint8)
    words = np.unique(np.frombuffer(memory[: len(memory) // 4 * 4], "<u4")).astype(np.int64)
    scores = [_strings(data, words - page - offset) for page in PAGE_OFFSETS]
    best, second = sorted(scores)[-1:-3:-1]
    if best < LEAST or best < 2 * second:
        raise InputError(path, "cannot find the link address of this kernel")
    return PAGE_OFFSETS[scores.index(best)]


def _strings(data: NDArray[np.uint8], at: NDArray[np.int64]) -> int:
    """Count the offsets at which a string begins."""
    at = at[(at > 0) & (at < len(data) - LETTERS)]
    at = at[data[at - 1] == 0]
    for letter in range(LETTERS):
        at = at[data[at + letter] - 32 < 95]
    return len(at)
