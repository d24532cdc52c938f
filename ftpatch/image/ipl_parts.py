# SPDX-License-Identifier: MIT
"""The parts of IBM Z's bzImage, and its kernel as an ELF file: see containers/ipl_image.py."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import BIG
from ftpatch.errors import InputError
from ftpatch.image.compression import kind_of

__all__ = [
    "SIZE",
    "Parts",
    "as_elf",
    "find_parts",
    "found_again",
    "from_elf",
    "led_aside",
    "said_size",
]

MAGIC_END = 0x1000E
BASE: Final = 0x10_0000
"""Address that kernels are linked at (TEXT_OFFSET)."""
PAGE = 4096
TRAILER = bytes(24) + b"\0\0\0\x20zIPL"
SIZE = 4
"""Bytes of the unpacked size behind a stream, and of a relocation."""
MACHINE = 22
"""EM_S390."""
RELATIVE = 12
"""R_390_RELATIVE."""
ENTRY = 16
"""Bytes of a .rel.dyn entry."""
HEADER = struct.Struct(">4sBBB9xHHIQQQIHHHHHH")
SEGMENT = struct.Struct(">IIQQQQQQ")
SECTION = struct.Struct(">IIQQQQIIQQ")
NAMES = b"\0.rel.dyn\0.shstrtab\0"
ET_DYN, PT_LOAD, RWX = 3, 1, 7
SHT_STRTAB, SHT_REL, SHF_ALLOC = 3, 9, 2


@dataclass(frozen=True, slots=True)
class Parts:
    """File offsets: of the relocations and their end, of the stream, of the end of its size;
    ``end_at`` is where the last of these stands in the decompressor, ``last`` where the room for a
    stream ends."""

    relocations: int
    relocated: int
    stream: int
    end: int
    end_at: int
    last: int


def find_parts(path: Path | str, data: memoryview) -> Parts:
    """Find the parts by the addresses of them that the decompressor holds. Raises InputError."""
    words = BIG.unsigned(data[: min(len(data), BASE) // 8 * 8].tobytes(), 8)
    inside = (words > MAGIC_END) & (words <= len(data))
    last = _trailer(data)
    filled = _filled(data, last)
    # The last bytes of the size may be zeros.
    row = np.flatnonzero(inside & (words >= filled) & (words < filled + SIZE))
    ends = [(at, end) for at, end in zip(row.tolist(), words[row].tolist(), strict=True)
            if said_size(data, end) > BASE]  # fmt: skip
    streams = inside & (words % np.uint64(8) == 0) & (words < filled)
    for stream in np.unique(words[streams]).tolist() if ends else ():
        end_at, end = ends[0]
        if 8 * end_at >= stream or kind_of(data[stream : stream + 16]) is None:
            continue
        held = words[: stream // 8][inside[: stream // 8]]
        listed = _relocations(data, stream, held, BASE + said_size(data, end))
        return Parts(*listed, stream, end, 8 * end_at, last)
    raise InputError(
        path, "the decompressor does not tell where its payload is", "use the vmlinux of the build"
    )


def _trailer(data: memoryview) -> int:
    """File offset of the trailer, the last that there is; 0 if there is none."""
    for end in range(len(data) // PAGE * PAGE, 0, -PAGE):
        if data[end - len(TRAILER) : end] == TRAILER:
            return end - len(TRAILER)
    return 0


def _filled(data: memoryview, last: int) -> int:
    """End of the last byte before ``last`` that is not zero."""
    return len(data[:last].tobytes().rstrip(b"\0"))


def said_size(data: memoryview, end: int) -> int:
    """The size that a stream unpacks to, which ends there."""
    return int.from_bytes(data[end - SIZE : end].tobytes(), "little")


def _relocations(
    data: memoryview, stream: int, words: NDArray[np.uint64], limit: int
) -> tuple[int, int]:
    """File offsets of the list before the stream, and of its end: from the first address on that
    the decompressor holds behind which there are nothing but places in the kernel."""
    end = stream - SIZE * (not any(data[stream - SIZE : stream]))  # what aligns the stream
    entries = BIG.unsigned(data[:end].tobytes(), SIZE)
    outside = np.flatnonzero((entries < BASE) | (entries >= limit + PAGE))
    first = SIZE * (int(outside[-1]) + 1 if len(outside) else 0)
    starts = words[(words >= first) & (words <= end) & (words % np.uint64(SIZE) == 0)]
    return int(starts.min(initial=end)), end


def _edge(size: int) -> int:
    """The first address behind memory of that size, aligned."""
    return BASE + size + -size % 8


def found_again(
    entries: NDArray[np.int64], size: int
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """The place of each relocation, uint64[n], and which of them are not led aside, bool[n]."""
    live = entries < _edge(size)
    step = np.diff(entries, prepend=0)
    last = np.maximum.accumulate(np.where(live, np.arange(len(entries)), 0))
    step = np.where(live, 0, entries - _edge(size))
    walked = np.cumsum(step)
    place = np.where(live, entries, entries[last] + walked - walked[last]) if len(entries) else step
    return place.astype(np.uint64), live


def led_aside(
    path: Path | str, place: NDArray[np.uint64], live: NDArray[np.bool_], size: int
) -> NDArray[np.int64]:
    """The list, int64[n], with what is not live led aside. Raises InputError where that cannot be
    told apart."""
    at = place.astype(np.int64)
    aside = _edge(size) + np.diff(at, prepend=0)
    entries = np.where(live, at, aside)
    room = BASE + size + -size % PAGE - 8
    fits = live | ((aside > _edge(size)) & (aside <= room))
    if not fits.all() or (len(live) and not live[0]):
        raise InputError(path, "this kernel has no room to lead the relocations of records aside")
    return entries


def as_elf(memory: memoryview, place: NDArray[np.uint64], live: NDArray[np.bool_]) -> bytearray:
    table = PAGE + len(memory) + -len(memory) % 8
    names = table + ENTRY * len(place)
    headers = names + len(NAMES) + -len(NAMES) % 8
    out = bytearray(headers + 3 * SECTION.size)
    ident = b"\x7fELF", 2, 2, 1  # 64 bits, big-endian, version
    about = ET_DYN, MACHINE, 1, BASE, HEADER.size, headers, 0
    HEADER.pack_into(out, 0, *ident, *about, HEADER.size, SEGMENT.size, 1, SECTION.size, 3, 2)
    extent = len(memory) + -len(memory) % PAGE
    place_in = PT_LOAD, RWX, PAGE, BASE, BASE, len(memory), extent, PAGE
    SEGMENT.pack_into(out, HEADER.size, *place_in)
    out[PAGE : PAGE + len(memory)] = memory
    rows = np.stack([place, live * np.uint64(RELATIVE)], axis=1)
    out[table:names] = BIG.rows(rows.reshape(-1), 8).tobytes()
    out[names : names + len(NAMES)] = NAMES
    rel = 1, SHT_REL, SHF_ALLOC, 0, table, names - table, 0, 0, 8, ENTRY
    SECTION.pack_into(out, headers + SECTION.size, *rel)
    strings = NAMES.index(b".shstrtab"), SHT_STRTAB, 0, 0, names, len(NAMES), 0, 0, 1, 0
    SECTION.pack_into(out, headers + 2 * SECTION.size, *strings)
    return out


def from_elf(
    path: Path | str, inside: memoryview
) -> tuple[memoryview, NDArray[np.uint64], NDArray[np.bool_]]:
    """Memory, places and which of them are live, of what as_elf() made. Raises InputError for
    anything else: code that was laid in has nowhere to go."""
    try:
        size = SEGMENT.unpack_from(inside, HEADER.size)[5]
        headers = len(inside) - 3 * SECTION.size
        table, count = SECTION.unpack_from(inside, headers + SECTION.size)[4:6]
        rows = BIG.unsigned(inside[table : table + count].tobytes(), 8).reshape(-1, 2)
    except (struct.error, ValueError):
        rows, size = np.zeros((0, 2), np.uint64), 0
    memory = inside[PAGE : PAGE + size]
    place, live = rows[:, 0].copy(), rows[:, 1] != 0
    if as_elf(memory, place, live) != inside:
        raise InputError(path, "nothing but the memory of this kernel can be changed")
    return memory, place, live
