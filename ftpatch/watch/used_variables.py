# SPDX-License-Identifier: MIT
"""The variable that a library means by a name: its own, or another that takes its place.

A program that refers to a library's variable at a fixed address has a copy of it (R_*_COPY), and
the dynamic linker binds everybody to that, the library too. What it has bound stands in the GOT:

library   counter   -> never used                  program   counter   <- the copy
          GOT | address of the copy |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ftpatch.arch import Arch
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import opened_memory

__all__ = ["used_address"]

WORD: Final = 8


def used_address(library: Loaded, address: int, arch: Arch) -> int | None:
    """Find the address in memory of the variable that a library has at a link address; None if it
    has no slot for it: then the variable is its own. Raises InputError for memory that cannot be
    read."""
    relocations, symbols = library.file.relocations, library.file.dynamic_symbols
    names = {*symbols.names(np.flatnonzero(symbols.value == np.uint64(address)))}
    by_name = np.flatnonzero(np.isin(relocations.type, (*arch.got, arch.absolute)))
    by_name = by_name[relocations.symbol[by_name] < len(symbols)]
    found = symbols.names(relocations.symbol[by_name].astype(np.intp))
    slots = [row for row, name in zip(by_name.tolist(), found, strict=True) if name in names]
    with opened_memory(library.process, library.mappings) as memory:
        for row in slots:
            held, there = memory.read(library.above(int(relocations.place[row])), WORD)
            if there.all():
                bound = int.from_bytes(held.tobytes(), "little")
                return (bound - int(relocations.addend[row])) % (1 << 64)
    return None
