"""The program property that asks for a shadow stack of the processor's own.

    .note.gnu.property   namesz 4, descsz, type 5, "GNU\\0" | type, size 4, bits | ...

A tracer that replaces return addresses is what a shadow stack is there to stop: x86's SHSTK (Linux
ABI, "Program Property"), arm64's GCS (AAELF64, "Program Property").
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch import Arch
from ftpatch.changes import NO_OWNER, Changes, Kind
from ftpatch.image import Image
from ftpatch.image.headers import Segment

__all__ = ["without_shadow_stack"]

NT_GNU_PROPERTY_TYPE_0 = 5


def without_shadow_stack(image: Image, arch: Arch) -> Changes:
    """Changes that take the property's bit away, none where it is not set."""
    kind, bit = arch.shadow_stack
    align = image.elf.word
    places, values = set[int](), dict[int, int]()
    for segment in image.elf.skeleton.segments:
        if segment.type != Segment.PT_NOTE or not kind:
            continue
        end = min(segment.offset + segment.size, len(image.data))
        at = segment.offset
        while at + 16 <= end:
            name, size, note = (_word(image, at + 4 * i) for i in range(3))
            start = at + 12 + (name + 3) // 4 * 4
            stop = min(start + size, end)
            if note == NT_GNU_PROPERTY_TYPE_0 and name == 4:
                while start + 12 <= stop:
                    if _word(image, start) == kind and _word(image, start + 4) == 4:
                        places.add(start + 8)
                        values[start + 8] = _word(image, start + 8)
                    start += 8 + (_word(image, start + 4) + align - 1) // align * align
            at = at + 12 + (name + 3) // 4 * 4 + (size + align - 1) // align * align
    found = sorted(place for place in places if values[place] & bit)
    old = np.array([values[place] for place in found], "<u4")
    new = old & np.uint32(~bit & 0xFFFF_FFFF)
    before, after = (c.astype("<u4").view(np.uint8).reshape(-1, 4) for c in (old, new))
    return Changes.of(Kind.HEADER, np.array(found, np.int64), before, after, NO_OWNER)


def _word(image: Image, offset: int) -> int:
    return int.from_bytes(image.data[offset : offset + 4].tobytes(), "little")
