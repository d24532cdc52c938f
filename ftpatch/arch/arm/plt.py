# SPDX-License-Identifier: MIT
"""A PLT of 32-bit ARM, in A32; callers in T32 that cannot change the set enter it in front:

    [bx pc; nop] add ip, pc, #; add ip, ip, #; [add ip, ip, #;] ldr pc, [ip, #]!

ELF for the Arm Architecture, 5.3 "PLT Sequences and Usage Models"; elf32_arm_plt_entry of binutils'
bfd/elf32-arm.c.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm.encode import A32, BX_PC, MAX_ADDS, PLT_FIRST, PLT_LAST, PLT_NEXT
from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries

__all__ = ["entries"]


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots."""
    del size, got  # the instructions themselves mark the start
    word = np.frombuffer(code[: len(code) // 4 * 4].tobytes(), "<u4").astype(np.int64)
    word = np.append(word, [0] * MAX_ADDS)
    first = np.flatnonzero(word >> 12 == PLT_FIRST)
    slot = address + 4 * first + 8 + _immediate(word[first])
    known = np.zeros(len(first), bool)
    going = ~known
    for behind in range(1, MAX_ADDS):
        insn = word[np.minimum(first + behind, len(word) - 1)]
        last = going & (insn >> 12 == PLT_LAST)
        slot += np.where(last, insn & 0xFFF, 0)
        known |= last
        going &= insn >> 12 == PLT_NEXT
        slot += np.where(going, _immediate(insn), 0)
    first, slot = first[known], slot[known] & A32.WRAP
    lead = (first > 0) & (word[np.maximum(first - 1, 0)] == BX_PC)
    return address + 4 * (first - lead), address + 4 * first, slot


def _immediate(insn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Modified immediates: eight bits, rotated to the right by twice the upper four (A5.2.4)."""
    turn, value = 2 * (insn >> 8 & 0xF), insn & 0xFF
    return np.asarray((value >> turn | value << (32 - turn)) & A32.WRAP, np.int64)
