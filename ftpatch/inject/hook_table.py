# SPDX-License-Identifier: MIT
"""The GOT slots through which a program calls close(), dup2() and the like, redirected so that the
runtime can protect its perf events (stubs/runtime/slots.c). Static programs have none.

Signals need no hooks: stubs/runtime/system_calls.c patches the system calls in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from ftpatch.arch import Arch
from ftpatch.core.byte_order import ByteOrder
from ftpatch.elf.headers import Segment
from ftpatch.image import Image
from ftpatch.layout import constants, pack

__all__ = ["Hook", "HookTable", "HookWhich", "find_hooks"]

PT_GNU_RELRO = 0x6474_E552


class HookWhich(IntEnum):
    """enum hook_which."""

    CLOSE = constants["HOOK_CLOSE"]
    CLOSEFROM = constants["HOOK_CLOSEFROM"]
    CLOSE_RANGE = constants["HOOK_CLOSE_RANGE"]
    DUP2 = constants["HOOK_DUP2"]
    DUP3 = constants["HOOK_DUP3"]


IMPORTED = {which.name.lower(): which for which in HookWhich}


@dataclass(frozen=True)
class Hook:
    """struct hook: the link address of a GOT slot, and ``which`` function it is for."""

    place: int
    which: HookWhich


@dataclass(frozen=True)
class HookTable:
    """struct hook_table: ``hooks``, and ``sealed``, the range of link addresses that RELRO makes
    read-only."""

    hooks: Sequence[Hook] = ()
    sealed: tuple[int, int] = (0, 0)

    def pack(self, order: ByteOrder) -> bytes:
        """Pack the table for the runtime."""
        start, end = self.sealed
        head = pack("hook_table", order, sealed=start, sealed_end=end, count=len(self.hooks))
        rows = (pack("hook", order, place=hook.place, which=hook.which) for hook in self.hooks)
        return head + b"".join(rows)


def find_hooks(image: Image, arch: Arch) -> HookTable:
    """Find the slots to redirect."""
    if image.elf.segment(Segment.PT_INTERP) is None:
        return HookTable()
    symbols, relocations = image.dynamic_symbols, image.relocations
    rows = np.flatnonzero(np.isin(relocations.type, (*arch.got, arch.absolute)))
    index = relocations.symbol[rows].astype(np.intp)
    rows, index = rows[index < len(symbols)], index[index < len(symbols)]
    hooks = [
        Hook(int(relocations.place[row]), IMPORTED[name])
        for row, name in zip(rows.tolist(), symbols.names(index), strict=True)
        if name in IMPORTED
    ]
    relro = image.elf.segment(PT_GNU_RELRO)
    end = min(relro.address + relro.memory_size, (1 << 64) - 1) if relro else 0
    return HookTable(hooks, (relro.address, end) if relro else (0, 0))
