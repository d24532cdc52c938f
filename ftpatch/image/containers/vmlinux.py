# SPDX-License-Identifier: MIT
"""The linked kernel: vmlinux; or its memory alone, which is what a container of IBM Z's or 32-bit
ARM's has inside, in the ELF file that `extract` makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftpatch.elf.headers import Segment, Skeleton
from ftpatch.image.container import ElfKind

if TYPE_CHECKING:
    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]

SECTIONS = {".init.text", "__ksymtab", ".data..percpu", "__param"}
"""Sections that include/asm-generic/vmlinux.lds.h lays out and no program has together."""


BANNER = b"Linux version "
"""Words of linux_banner."""


class Vmlinux(ElfKind):
    """A linked kernel: by the bounds of its table, by its sections, or by its words."""

    name = "vmlinux"
    order = 10
    is_kernel = True

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        if elf.skeleton.type not in (Skeleton.ET_EXEC, Skeleton.ET_DYN):
            return False
        if {section.name for section in elf.sections} >= SECTIONS:
            return True
        return symbols.find("__start_mcount_loc") is not None or _is_memory(elf)


def _is_memory(elf: Elf) -> bool:
    """Return whether a file is one segment, of which everything may be done with each byte, as with
    a kernel that has not set up its own pages."""
    if len(elf.skeleton.segments) != 1:
        return False
    (only,) = elf.skeleton.segments
    every = Segment.PF_R | Segment.PF_W | Segment.PF_X
    if only.type != Segment.PT_LOAD or only.flags & every != every:
        return False
    return elf.data[only.offset : only.offset + only.size].tobytes().find(BANNER) >= 0


CONTAINER: ElfKind = Vmlinux()
