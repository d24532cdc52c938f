# SPDX-License-Identifier: MIT
"""The linked kernel: vmlinux."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftpatch.elf.headers import Skeleton
from ftpatch.image.container import ElfKind

if TYPE_CHECKING:
    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]

SECTIONS = {".init.text", "__ksymtab", ".data..percpu", "__param"}
"""Sections that include/asm-generic/vmlinux.lds.h lays out and no program has together."""


class Vmlinux(ElfKind):
    """A linked kernel: by the bounds of its table or by its sections."""

    name = "vmlinux"
    order = 10
    is_kernel = True

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        if elf.skeleton.type not in (Skeleton.ET_EXEC, Skeleton.ET_DYN):
            return False
        if {section.name for section in elf.sections} >= SECTIONS:
            return True
        return symbols.find("__start_mcount_loc") is not None


CONTAINER: ElfKind = Vmlinux()
