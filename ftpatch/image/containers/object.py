# SPDX-License-Identifier: MIT
"""Objects, the input of a link editor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftpatch.elf.headers import Skeleton
from ftpatch.image.container import ElfKind

if TYPE_CHECKING:
    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]


class RelocatableObject(ElfKind):
    """Every ET_REL that is not a module."""

    name = "object"
    order = 30

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        return elf.skeleton.type == Skeleton.ET_REL


CONTAINER: ElfKind = RelocatableObject()
