"""The dynamic table (PT_DYNAMIC), which still says where things are without section headers."""

from __future__ import annotations

import numpy as np

from ftpatch.image.elf import Elf
from ftpatch.image.headers import Segment

__all__ = ["Tag", "dynamic_tags", "offset_of_tag"]


class Tag:
    """d_tag values (System V ABI, chapter 5, "Dynamic Section"; RELR: the 2019 gABI addition)."""

    HASH = 4
    STRTAB = 5
    SYMTAB = 6
    RELA = 7
    RELASZ = 8
    STRSZ = 10
    REL = 17
    RELSZ = 18
    PLTREL = 20
    JMPREL = 23
    PLTRELSZ = 2
    PLTGOT = 3
    RELRSZ = 35
    RELR = 36
    GNU_HASH = 0x6FFFFEF5


def dynamic_tags(elf: Elf) -> dict[int, int]:
    """d_tag -> d_val of the dynamic table; empty where there is none. Raises InputError."""
    segment = elf.segment(Segment.PT_DYNAMIC)
    if segment is None or segment.size < 2 * elf.word:
        return {}
    size = segment.size - segment.size % (2 * elf.word)
    raw = elf.contents(segment.offset, size, "dynamic table").tobytes()
    pairs = np.frombuffer(raw, f"<u{elf.word}").reshape(-1, 2).tolist()
    tags: dict[int, int] = {}
    for tag, value in pairs:
        if tag == 0:
            break
        tags.setdefault(tag, value)
    return tags


def offset_of_tag(elf: Elf, tags: dict[int, int], tag: int) -> int:
    """File offset of what a pointer-valued tag names; -1 where absent or not in the file."""
    if tag not in tags:
        return -1
    return int(elf.offset_of(np.array([tags[tag]], np.uint64))[0])
