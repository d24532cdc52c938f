"""Which program a tracer was laid into: what its stub says, and what the program itself comes to.

A stub's first part begins with `struct stub_config` (stubs/runtime/runtime.h), on a page boundary.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ftpatch.elf.headers import Segment

if TYPE_CHECKING:
    from ftpatch.image import Image

__all__ = ["CONFIG_MAGIC", "image_id", "laid_in_at", "laid_in_by", "laid_in_id"]

CONFIG_MAGIC = b"FTPATCHSTUB\0v1\0\0"
TRACER_AT = 56
"""Of its number there: offset, bytes; a number of 32 bits."""
VERBS = {5: "probe", 6: "watch"}
"""What lays them in, of tracers that no site calls."""
ID_AT, LENGTH = 72, 32
"""Of `image_id` there: offset and size, bytes."""
PAGE = 4096
MAX_SEGMENT = 1 << 26
"""Bytes of a segment that are looked at."""


def image_id(image: Image) -> bytes:
    """What tells a program from others, 32 bytes: SHA-256 of the file before it was traced."""
    return hashlib.sha256(image.data.data).digest()


def laid_in_id(image: Image) -> bytes | None:
    """The same, as the stub that was laid into a program has it; None where there is no stub."""
    at = laid_in_at(image)
    return None if at is None else image.data[at + ID_AT : at + ID_AT + LENGTH].tobytes()


def laid_in_by(image: Image) -> str | None:
    """The command that laid in what a program has besides tracers of its sites, and that tells of
    it; None where there is no such thing."""
    at = laid_in_at(image)
    held = b"" if at is None else image.data[at + TRACER_AT : at + TRACER_AT + 4].tobytes()
    return VERBS.get(int.from_bytes(held, "little"))


def laid_in_at(image: Image) -> int | None:
    """Where a stub's configuration is in a program (file offset); None where there is no stub."""
    for segment in image.elf.skeleton.segments:
        if segment.type != Segment.PT_LOAD or not segment.flags & Segment.PF_X:
            continue
        end = min(segment.offset + min(segment.size, MAX_SEGMENT), len(image.data))
        for offset in range(segment.offset // PAGE * PAGE, end, PAGE):
            head = image.data[offset : offset + ID_AT + LENGTH].tobytes()
            if head.startswith(CONFIG_MAGIC) and len(head) == ID_AT + LENGTH:
                return offset
    return None
