# SPDX-License-Identifier: MIT
"""The dynamic table (PT_DYNAMIC), which locates things even without section headers."""

from __future__ import annotations

import numpy as np

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment

__all__ = ["Tag", "dynamic_string", "dynamic_tags", "dynamic_values", "offset_of_tag"]


class Tag:
    """d_tag values (System V ABI, chapter 5, "Dynamic Section"; RELR: the 2019 gABI addition)."""

    NEEDED = 1
    HASH = 4
    STRTAB = 5
    SYMTAB = 6
    RELA = 7
    RELASZ = 8
    STRSZ = 10
    INIT = 12
    FINI = 13
    SONAME = 14
    RPATH = 15
    REL = 17
    RELSZ = 18
    PLTREL = 20
    DEBUG = 21
    JMPREL = 23
    INIT_ARRAYSZ = 27
    RUNPATH = 29
    PLTRELSZ = 2
    PLTGOT = 3
    RELRSZ = 35
    RELR = 36
    GNU_HASH = 0x6FFFFEF5
    FLAGS_1 = 0x6FFFFFFB
    VERSYM = 0x6FFFFFF0
    VERDEF = 0x6FFFFFFC
    VERDEFNUM = 0x6FFFFFFD


def dynamic_tags(elf: Elf) -> dict[int, int]:
    """d_tag -> d_val of the dynamic table; empty if there is none. Raises InputError."""
    tags: dict[int, int] = {}
    for tag, value, _ in dynamic_values(elf):
        tags.setdefault(tag, value)
    return tags


def dynamic_values(elf: Elf) -> list[tuple[int, int, int]]:
    """(d_tag, d_val, offset of d_val from the start of the table in bytes) of each entry, in order.
    Raises InputError."""
    segment = elf.segment(Segment.PT_DYNAMIC)
    if segment is None or segment.size < 2 * elf.word:
        return []
    size = segment.size - segment.size % (2 * elf.word)
    raw = elf.contents(segment.offset, size, "dynamic table")
    pairs = elf.order.unsigned(raw, elf.word).reshape(-1, 2)
    ends = np.flatnonzero(pairs[:, 0] == 0)
    held = pairs[: int(ends[0])].tolist() if len(ends) else pairs.tolist()
    return [(tag, value, (2 * n + 1) * elf.word) for n, (tag, value) in enumerate(held)]


def dynamic_string(elf: Elf, value: int) -> bytes:
    """Read the string at a d_val, an offset from DT_STRTAB; empty if that is not in the file."""
    tags = dynamic_tags(elf)
    start = offset_of_tag(elf, tags, Tag.STRTAB)
    if start < 0 or value >= tags.get(Tag.STRSZ, 0):
        return b""
    held = elf.data[start + value : start + tags[Tag.STRSZ]].tobytes()
    return held.partition(b"\0")[0]


def offset_of_tag(elf: Elf, tags: dict[int, int], tag: int) -> int:
    """File offset of what a pointer-valued tag names; -1 where absent or not in the file."""
    if tag not in tags:
        return -1
    return int(elf.offset_of(np.array([tags[tag]], np.uint64))[0])
