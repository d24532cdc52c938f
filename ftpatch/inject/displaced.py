"""Bytes to write over displaced instructions.

x86_64   55 48 89 e5 41 57   ->   e9 rel32 57    or   cc 48 89 e5 41 57
"""

from __future__ import annotations

import numpy as np

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.image import Image
from ftpatch.inject.methods import Chosen

__all__ = ["displaced"]


def displaced(image: Image, chosen: Chosen, new: bytes) -> Changes:
    """The change of a place to the jump or the breakpoint ``new``."""
    offset = image.elf.offset_of(np.array([chosen.address], np.uint64))
    old = np.frombuffer(chosen.code[: len(new)], np.uint8)[None]
    return Changes.of(Kind.CODE, offset, old, np.frombuffer(new, np.uint8)[None], NO_OWNER)
