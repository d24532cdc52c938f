# SPDX-License-Identifier: MIT
"""Kernel modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftpatch.elf.headers import Skeleton
from ftpatch.image.container import ElfKind

if TYPE_CHECKING:
    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]

MARKS = {".modinfo", ".gnu.linkonce.this_module"}
"""Sections that make an object a kernel module (scripts/mod/modpost.c writes the second)."""


class Module(ElfKind):
    """An object that a kernel loads."""

    name = "module"
    order = 20
    is_module = True

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        return elf.skeleton.type == Skeleton.ET_REL and {s.name for s in elf.sections} >= MARKS


CONTAINER: ElfKind = Module()
