# SPDX-License-Identifier: MIT
"""Identity of a program that a tracer was injected into: the one its stub records, and the
program's own hash.

A stub's first part begins with `struct stub_config` (stubs/runtime/runtime.h), on a page boundary.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import header_field
from ftpatch.layout import constants, structure, texts, unpack

if TYPE_CHECKING:
    from ftpatch.image import Image

__all__ = ["CONFIG_MAGIC", "gone_entry", "image_id", "laid_in_at", "laid_in_by", "laid_in_id"]

CONFIG_MAGIC = texts["STUB_MAGIC"]
SIZE = structure("stub_config").itemsize
VERBS = {constants["TRACER_PROBES"]: "probe", constants["TRACER_WATCH"]: "watch"}
"""Verbs that inject tracers that no site calls."""
PAGE = 4096
MAX_SEGMENT = 1 << 26
"""Bytes of a segment to examine."""


def image_id(image: Image) -> bytes:
    """Return the identity of a program, 32 bytes: SHA-256 of the file before it was traced."""
    return hashlib.sha256(image.data.data).digest()


def laid_in_id(image: Image) -> bytes | None:
    """Return the same as recorded in a program's stub; None without a stub."""
    at = laid_in_at(image)
    return None if at is None else bytes(_config(image, at)["image_id"])


def laid_in_by(image: Image) -> str | None:
    """Return the command that injected something besides tracers of sites, and that reports it;
    None if there is none."""
    at = laid_in_at(image)
    return None if at is None else VERBS.get(_config(image, at)["tracer"])


def laid_in_at(image: Image) -> int | None:
    """Find a stub's configuration in a program (file offset); None without a stub."""
    for segment in image.elf.skeleton.segments:
        if segment.type != Segment.PT_LOAD or not segment.flags & Segment.PF_X:
            continue
        end = min(segment.offset + min(segment.size, MAX_SEGMENT), len(image.data))
        for offset in range(segment.offset // PAGE * PAGE, end, PAGE):
            head = image.data[offset : offset + SIZE].tobytes()
            if head.startswith(CONFIG_MAGIC) and len(head) == SIZE:
                return offset
    return None


def gone_entry(image: Image) -> int:
    """Return a program's entry point, or a library's DT_INIT, if no segment maps it, as after
    `strip` of one that has something injected; else 0."""
    entry = 0
    if image.is_program:
        entry = header_field(image.elf, "e_entry")
    elif image.is_library:
        entry = dynamic_tags(image.elf).get(Tag.INIT, 0)
    return entry if not image.elf.in_memory(np.array([entry], np.uint64))[0] else 0


def _config(image: Image, at: int) -> dict[str, Any]:
    raw = image.data[at : at + SIZE].tobytes()
    return unpack("stub_config", image.elf.order, raw)
