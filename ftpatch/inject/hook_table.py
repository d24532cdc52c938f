# SPDX-License-Identifier: MIT
"""GOT slots by which a program asks libc to close descriptors. The runtime of watches answers, as
far as its own are concerned (stubs/runtime/slots.c). Static programs keep theirs.

What is asked about signals needs no slots: stubs/runtime/lead.c meets it in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ftpatch.arch import Arch
from ftpatch.elf.headers import Segment
from ftpatch.image import Image
from ftpatch.layout import constants, pack

__all__ = ["Hooked", "Hooks", "Slot", "find_hooks"]

PT_GNU_RELRO = 0x6474_E552


class Hooked(IntEnum):
    """enum hook_which."""

    CLOSE = constants["HOOK_CLOSE"]
    CLOSEFROM = constants["HOOK_CLOSEFROM"]
    CLOSE_RANGE = constants["HOOK_CLOSE_RANGE"]
    DUP2 = constants["HOOK_DUP2"]
    DUP3 = constants["HOOK_DUP3"]


IMPORTED = {which.name.lower(): which for which in Hooked}


@dataclass(frozen=True)
class Slot:
    """Link address of a GOT slot, and whose it is."""

    place: int
    which: Hooked


@dataclass(frozen=True)
class Hooks:
    """``slots`` of the GOT; ``sealed``: link addresses of what can only be read."""

    slots: Sequence[Slot] = ()
    sealed: tuple[int, int] = (0, 0)

    def pack(self) -> bytes:
        """The table as the runtime reads it."""
        start, end = self.sealed
        head = pack("hook_table", sealed=start, sealed_end=end, count=len(self.slots))
        rows = (pack("hook", place=slot.place, which=slot.which) for slot in self.slots)
        return head + b"".join(rows)


def find_hooks(image: Image, arch: Arch) -> Hooks:
    """Find the slots to redirect, so that the kernel's events stay open."""
    if image.elf.segment(Segment.PT_INTERP) is None:
        return Hooks()
    symbols, relocations = image.dynamic_symbols, image.relocations
    rows = np.flatnonzero(np.isin(relocations.type, (*arch.got, arch.absolute)))
    index = relocations.symbol[rows].astype(np.intp)
    rows, index = rows[index < len(symbols)], index[index < len(symbols)]
    slots = [
        Slot(int(relocations.place[row]), IMPORTED[name])
        for row, name in zip(rows.tolist(), symbols.names(index), strict=True)
        if name in IMPORTED
    ]
    relro = image.elf.segment(PT_GNU_RELRO)
    end = min(relro.address + relro.memory_size, (1 << 64) - 1) if relro else 0
    return Hooks(slots, (relro.address, end) if relro else (0, 0))
