# SPDX-License-Identifier: MIT
"""A PLT of x86_64: ``jmp *slot(%rip)``, ff 25 rel32, once in 8 or 16 bytes.

    [endbr64] ... [bnd] jmp *slot(%rip)

System V ABI, AMD64 supplement, section 5.2.5.
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries

__all__ = ["entries"]


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots; ``size``: sh_entsize, the alignment of entries."""
    del got
    jump = np.flatnonzero((code[:-5] == 0xFF) & (code[1:-4] == 0x25))
    rel = np.zeros(len(jump), np.uint32)
    for i in range(4):
        rel |= code[jump + 2 + i].astype(np.uint32) << np.uint32(8 * i)
    entry = 8 if size == 8 else 16
    start = address + jump // entry * entry
    return start, address + jump, address + jump + 6 + rel.view(np.int32)
