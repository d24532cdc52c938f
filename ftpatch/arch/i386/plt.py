# SPDX-License-Identifier: MIT
"""A PLT of i386: a jump through a slot, once in 8 or 16 bytes.

    [endbr32] ... jmp *slot            ff 25 disp32
    [endbr32] ... jmp *slot(%ebx)      ff a3 disp32, from the GOT, where position-independent

System V ABI, Intel386 supplement, chapter 5, "Procedure Linkage Table".
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries

__all__ = ["entries"]


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots; ``size``: sh_entsize, the alignment of entries."""
    second = code[1:-4]
    jump = np.flatnonzero((code[:-5] == 0xFF) & ((second == 0x25) | (second == 0xA3)))
    slot = np.zeros(len(jump), np.uint32)
    for i in range(4):
        slot |= code[jump + 2 + i].astype(np.uint32) << np.uint32(8 * i)
    slot += np.where(code[jump + 1] == 0xA3, got, 0).astype(np.uint32)  # wraps
    entry = 8 if size == 8 else 16
    start = address + jump // entry * entry
    return start, address + jump, slot.astype(np.int64)
