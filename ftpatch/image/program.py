"""Programs: executables and shared objects."""

from __future__ import annotations

from ftpatch.image.dynamic import dynamic_tags
from ftpatch.image.elf import Elf
from ftpatch.image.headers import Segment, Skeleton

__all__ = ["program_container"]

DT_FLAGS_1, DF_1_PIE = 0x6FFFFFFB, 0x08000000
"""A PIE says so in its dynamic table; a library does not (binutils 2.26 and later, LLD)."""


def program_container(elf: Elf) -> str | None:
    """``executable`` or ``shared-object``; None for what is neither. Raises InputError.

    A PIE and a library are both ET_DYN: the flag DF_1_PIE or an interpreter tells them apart.
    """
    if elf.skeleton.type == Skeleton.ET_EXEC:
        return "executable"
    if elf.skeleton.type != Skeleton.ET_DYN:
        return None
    pie = dynamic_tags(elf).get(DT_FLAGS_1, 0) & DF_1_PIE
    return "executable" if pie or elf.segment(Segment.PT_INTERP) else "shared-object"
