# SPDX-License-Identifier: MIT
"""A PLT of loongarch64:

    pcaddu12i $t3, high; ld.d $t3, $t3, low; jirl $t1, $t3, 0; nop

As GNU ld and lld write it.
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8
from ftpatch.arch.loongarch64.encode import LA
from ftpatch.arch.plt import Entries

__all__ = ["entries"]


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots."""
    del size, got  # the instructions themselves mark the start
    word = np.frombuffer(code[: len(code) // 4 * 4].tobytes(), "<u4")
    word = np.append(word, np.zeros(2, "<u4"))
    first, load, jump = word[:-2], word[1:-1], word[2:]
    found = first & np.uint32(LA.SI20) == LA.PCADDU12I_T3
    found &= (load & np.uint32(LA.SI12) == LA.LD_D_T3_T3) & (jump == LA.JIRL_T1_T3)
    at = np.flatnonzero(found)
    high = (first[at] << np.uint32(7)).view(np.int32).astype(np.int64) >> 12 << 12
    low = (load[at] << np.uint32(10)).view(np.int32).astype(np.int64) >> 20
    start = address + 4 * at
    return start, start, start + high + low
