# SPDX-License-Identifier: MIT
"""The variable that a library in a process means by a name: its own, or another that takes its
place (``homes``)."""

from __future__ import annotations

from typing import Final

from ftpatch.arch import Arch
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import opened_memory
from ftpatch.watch.homes import slots_of

__all__ = ["used_address"]

WORD: Final = 8


def used_address(library: Loaded, address: int, arch: Arch) -> int | None:
    """Find the address in memory of the variable that a library has at a link address; None if it
    has no slot for it: then the variable is its own. Raises InputError for memory that cannot be
    read."""
    relocations = library.file.relocations
    with opened_memory(library.process, library.mappings) as memory:
        for row in slots_of(library.file, address, arch):
            held, there = memory.read(library.above(int(relocations.place[row])), WORD)
            if there.all():
                bound = int.from_bytes(held.tobytes(), "little")
                return (bound - int(relocations.addend[row])) % (1 << 64)
    return None
