# SPDX-License-Identifier: MIT
"""Programs: executables and shared objects."""

from __future__ import annotations

from ftpatch.elf.dynamic import dynamic_tags
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment, Skeleton

__all__ = ["program_container"]

DT_FLAGS_1, DF_1_PIE = 0x6FFFFFFB, 0x08000000
"""A PIE says so in its dynamic table; a library does not (binutils 2.26 and later, LLD)."""
DT_SONAME = 14


def program_container(elf: Elf) -> str | None:
    """``executable`` or ``shared-object``; None for what is neither. Raises InputError.

    A PIE and a library are both ET_DYN: the flag DF_1_PIE tells them apart, or an interpreter, but
    glibc's libraries have one, too: what is loaded by its name (DT_SONAME) is a library.
    """
    if elf.skeleton.type == Skeleton.ET_EXEC:
        return "executable"
    if elf.skeleton.type != Skeleton.ET_DYN:
        return None
    tags = dynamic_tags(elf)
    pie = tags.get(DT_FLAGS_1, 0) & DF_1_PIE
    runs = elf.segment(Segment.PT_INTERP) and DT_SONAME not in tags
    return "executable" if pie or runs else "shared-object"
