# SPDX-License-Identifier: MIT
"""A PLT of riscv64:

    [lpad] auipc t3, high; ld t3, low(t3); jalr t1, t3; nop

RISC-V psABI, "Procedure Linkage Table".
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries
from ftpatch.arch.riscv64.encode import RV

__all__ = ["entries"]


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots."""
    del size, got  # the instructions themselves mark the start
    word = np.frombuffer(code[: len(code) // 4 * 4].tobytes(), "<u4")
    word = np.append(word, np.zeros(2, "<u4"))
    first, load, jump = word[:-2], word[1:-1], word[2:]
    found = first & np.uint32(RV.AUIPC_MASK) == RV.AUIPC | RV.T3 << 7
    found &= (load & np.uint32(RV.JALR_MASK) == RV.LD_T3) & (jump == RV.JALR_T1_T3)
    at = np.flatnonzero(found)
    high = (first[at] & ~np.uint32(RV.AUIPC_MASK)).view(np.int32).astype(np.int64)
    low = load[at].view(np.int32).astype(np.int64) >> 20
    before = word[np.maximum(at - 1, 0)]
    lead = (at > 0) & (before & np.uint32(RV.AUIPC_MASK) == RV.AUIPC)  # lpad: auipc x0
    return address + 4 * (at - lead), address + 4 * at, address + 4 * at + high + low
