"""Whether a trace belongs to an image."""

from __future__ import annotations

import hashlib

from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.image.headers import Segment
from ftpatch.trace.header import Header

__all__ = ["image_id", "require_owner"]

MAGIC = b"FTPATCHSTUB\0v1\0\0"
ID_AT, LENGTH = 72, 32
"""Of `image_id` in `struct stub_config` (stubs/runtime/runtime.h): offset and size, bytes."""
PAGE = 4096
"""A stub begins a page, behind the program headers."""
MOST = 1 << 26
"""Bytes of a segment that are looked at."""


def image_id(image: Image) -> bytes | None:
    """What the laid-in segment of a patched image says of it: 32 bytes. None where there is no such
    segment."""
    for segment in image.elf.skeleton.segments:
        if segment.type != Segment.PT_LOAD or not segment.flags & Segment.PF_X:
            continue
        end = min(segment.offset + min(segment.size, MOST), len(image.data))
        for offset in range(segment.offset // PAGE * PAGE, end, PAGE):
            head = image.data[offset : offset + ID_AT + LENGTH].tobytes()
            if head.startswith(MAGIC) and len(head) == ID_AT + LENGTH:
                return head[ID_AT:]
    return None


def require_owner(header: Header, image: Image) -> bool:
    """Whether the trace is the image's own, or that of a traced copy of it; not where the trace
    does not say. Raises InputError for a trace of another image."""
    if not any(header.image_id):
        return False
    own = image_id(image) or hashlib.sha256(image.data.data).digest()
    if own != header.image_id:
        raise InputError(
            header.path,
            f"not a trace of {image.path}, or that was changed since",
            "give the right one with --image, or use --force",
        )
    return True
