# SPDX-License-Identifier: MIT
"""Programs: what the kernel's execve() starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftpatch.elf.headers import Segment, Skeleton
from ftpatch.image.container import ElfKind

if TYPE_CHECKING:
    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]

DT_FLAGS_1, DF_1_PIE = 0x6FFFFFFB, 0x08000000
"""A PIE says so in its dynamic table; a library does not (binutils 2.26 and later, LLD)."""
DT_SONAME = 14


class Executable(ElfKind):
    """A program.

    A PIE and a library are both ET_DYN: the flag DF_1_PIE tells them apart, or an interpreter, but
    glibc's libraries have one, too: what is loaded by its name (DT_SONAME) is a library.
    """

    name = "executable"
    order = 40
    is_program = True

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        if elf.skeleton.type != Skeleton.ET_DYN:
            return elf.skeleton.type == Skeleton.ET_EXEC
        from ftpatch.elf.dynamic import dynamic_tags

        tags = dynamic_tags(elf)
        pie = tags.get(DT_FLAGS_1, 0) & DF_1_PIE
        runs = elf.segment(Segment.PT_INTERP) and DT_SONAME not in tags
        return bool(pie or runs)


CONTAINER: ElfKind = Executable()
