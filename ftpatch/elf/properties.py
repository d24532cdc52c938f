# SPDX-License-Identifier: MIT
"""The program property that requests a hardware shadow stack.

    .note.gnu.property   namesz 4, descsz, type 5, "GNU\\0" | type, size 4, bits | ...

A tracer that replaces return addresses is exactly what a shadow stack stops: x86's SHSTK (Linux
ABI, "Program Property"), arm64's GCS (AAELF64, "Program Property").
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment

__all__ = ["cleared_property", "has_abi_tag", "without_shadow_stack"]

NT_GNU_ABI_TAG = 1
NT_GNU_PROPERTY_TYPE_0 = 5
NAMES = {0xC000_0002: "SHSTK", 0xC000_0000: "GCS"}
"""GNU_PROPERTY_X86_FEATURE_1_AND, GNU_PROPERTY_AARCH64_FEATURE_1_AND, as named by readelf."""
GNU = b"GNU\0"


def without_shadow_stack(elf: Elf, feature: tuple[int, int]) -> Changes:
    """Clear a feature, (property, bit); no changes if it is not set or does not exist."""
    kind, bit = feature
    align = elf.word
    places, values = set[int](), dict[int, int]()
    for note, start, stop in _notes(elf) if kind else ():
        if note != NT_GNU_PROPERTY_TYPE_0:
            continue
        while start + 12 <= stop:
            if _word(elf, start) == kind and _word(elf, start + 4) == 4:
                places.add(start + 8)
                values[start + 8] = _word(elf, start + 8)
            start += 8 + (_word(elf, start + 4) + align - 1) // align * align
    found = sorted(place for place in places if values[place] & bit)
    old = np.array([values[place] for place in found], np.uint32)
    new = old & np.uint32(~bit & 0xFFFF_FFFF)
    before, after = (elf.order.rows(column, 4) for column in (old, new))
    return Changes.of(Kind.HEADER, np.array(found, np.int64), before, after, NO_OWNER)


def cleared_property(elf: Elf, feature: tuple[int, int], changes: Changes) -> str:
    """The name of the feature, (property, bit), that Changes clear; empty if they do not."""
    gone = np.isin(without_shadow_stack(elf, feature).offset, changes.offset).any()
    return NAMES[feature[0]] if gone else ""


def has_abi_tag(elf: Elf) -> bool:
    """Return whether the program contains glibc's crt1.o, which registers the function in rdx and
    the like at startup (psABI, "Process Initialization") for exit; musl's does not."""
    return any(note == NT_GNU_ABI_TAG for note, _, _ in _notes(elf))


def _notes(elf: Elf) -> Iterator[tuple[int, int, int]]:
    """GNU notes: type, and file offsets of the descriptor and of its end."""
    for segment in elf.skeleton.segments:
        if segment.type != Segment.PT_NOTE:
            continue
        end = min(segment.offset + segment.size, len(elf.data))
        at = segment.offset
        while at + 16 <= end:
            name, size, note = (_word(elf, at + 4 * i) for i in range(3))
            start = at + 12 + (name + 3) // 4 * 4
            if elf.data[at + 12 : at + 12 + name].tobytes() == GNU:
                yield note, start, min(start + size, end)
            # Padded to 4 bytes; but GNU's properties, which have a segment of their own, to a word.
            step = elf.word if note == NT_GNU_PROPERTY_TYPE_0 else 4
            at = start + (size + step - 1) // step * step


def _word(elf: Elf, offset: int) -> int:
    return elf.order.integer(elf.data[offset : offset + 4])
