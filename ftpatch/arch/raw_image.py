# SPDX-License-Identifier: MIT
"""The kernel's boot Image: the architecture-specific part of its small header."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ftpatch.arch import Arch, architectures, feature, supports

__all__ = ["RawHeader", "raw_images"]


@dataclass(frozen=True, slots=True)
class RawHeader:
    """``magic``: four bytes at 0x38; ``not_offset``: text_offset that denotes another class;
    ``lowest``: address that such kernels are linked above."""

    magic: bytes
    not_offset: int = -1
    lowest: int = 0xFFFF_0000_0000_0000


@cache
def raw_images() -> dict[bytes, tuple[Arch, RawHeader]]:
    """Map the magic to the architecture that boots such an Image, and its header."""
    found = {}
    for arch in architectures().values():
        if supports(arch.name, "raw_image"):
            header: RawHeader = feature(arch.name, "raw_image")
            found[header.magic] = arch, header
    return found
