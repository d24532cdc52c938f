# SPDX-License-Identifier: MIT
"""Libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftpatch.elf.headers import Skeleton
from ftpatch.image.container import ElfKind

if TYPE_CHECKING:
    from ftpatch.elf.elf_file import Elf
    from ftpatch.elf.symbols import Symbols

__all__ = ["CONTAINER"]


class SharedObject(ElfKind):
    """Every ET_DYN that is not a program."""

    name = "shared-object"
    order = 50
    is_library = True

    def recognises(self, elf: Elf, symbols: Symbols) -> bool:
        return elf.skeleton.type == Skeleton.ET_DYN


CONTAINER: ElfKind = SharedObject()
