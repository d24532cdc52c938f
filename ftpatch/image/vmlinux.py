# SPDX-License-Identifier: MIT
"""The linked kernel: vmlinux."""

from __future__ import annotations

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Skeleton
from ftpatch.elf.symbols import Symbols

__all__ = ["is_vmlinux"]

SECTIONS = {".init.text", "__ksymtab", ".data..percpu", "__param"}
"""Sections that include/asm-generic/vmlinux.lds.h lays out and no program has together."""


def is_vmlinux(elf: Elf, symbols: Symbols) -> bool:
    """Return whether the image is a linked kernel: by the bounds of its table or by its
    sections."""
    if elf.skeleton.type not in (Skeleton.ET_EXEC, Skeleton.ET_DYN):
        return False
    if {section.name for section in elf.sections} >= SECTIONS:
        return True
    return symbols.find("__start_mcount_loc") is not None
