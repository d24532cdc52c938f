# SPDX-License-Identifier: MIT
"""Code that goes on elsewhere: veneers of link editors, and of ftpatch, and entries of a PLT.

    b addr
    ldr pc, [pc, #-4]; .word addr
    ldr ip, [pc]; bx ip; .word addr                                into T32
    ldr ip, [pc]; add pc, pc, ip; .word addr - (at + 12)
    ldr ip, [pc, #4]; add ip, pc, ip; bx ip; .word addr - (at + 12)
    ldr.w pc, [pc]; .word addr                                     in T32
    [bx pc; nop;] add ip, pc, #A; add ip, ip, #B; ldr pc, [ip, #C]!      an entry of a PLT

binutils' bfd/elf32-arm.c; ELF for the Arm Architecture, 5.3 "PLT Sequences and Usage Models".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ftpatch.arch.arm.encode import A32, linked
from ftpatch.core.columns import addresses

__all__ = ["stub_target"]

BX_PC: Final = 0x46C0_4778  # bx pc; nop (T32)
LDR_PC_T32: Final = (0xF000_F8DF, 0xF000_F85F)  # ldr.w pc, [pc]; ldr.w pc, [pc, #-0]
LDR_PC: Final = 0xE51F_F004  # ldr pc, [pc, #-4]
LDR_IP: Final = (0xE59F_C000, 0xE59F_C004)  # ldr ip, [pc]; ldr ip, [pc, #4]
BX_IP: Final = 0xE12F_FF1C  # bx ip
ADD_PC_IP: Final = 0xE08F_F00C  # add pc, pc, ip
ADD_IP_PC: Final = 0xE08F_C00C  # add ip, pc, ip
PLT_FIRST, PLT_NEXT, PLT_LAST = 0xE28F_C, 0xE28C_C, 0xE5BC_F
"""``add ip, pc, #``; ``add ip, ip, #``; ``ldr pc, [ip, #]!``: the upper 20 bits."""
MAX_ADDS: Final = 4


def stub_target(code: bytes, at: int) -> int:
    """Target of the code at an address; of a PLT entry its slot, negated; 0 for anything else. Bit
    0 of the address says that T32 is there."""
    word = [int.from_bytes(code[i : i + 4], "little") for i in range(0, 24, 4)]
    if at % 2:
        at -= 1
        if word[0] in LDR_PC_T32 and at % 4 == 0:
            return word[1]
        if word[0] != BX_PC or at % 4:
            return 0
        word, at = word[1:], at + 4
    if word[0] >> 24 == A32.B >> 24:
        insn = np.array([word[0] & A32.IMM | A32.BL], np.uint32)
        return int(linked(insn, addresses(at), np.zeros(1, bool))[1][0])
    if word[0] == LDR_PC:
        return word[1]
    if word[:2] == [LDR_IP[0], BX_IP]:
        return word[2]
    if word[:2] == [LDR_IP[0], ADD_PC_IP]:
        return at + 12 + word[2] & A32.WRAP
    if word[:3] == [LDR_IP[1], ADD_IP_PC, BX_IP]:
        return at + 12 + word[3] & A32.WRAP
    return -_slot(word, at)


def _slot(word: list[int], at: int) -> int:
    """The slot of a PLT entry, 0 for anything else."""
    if word[0] >> 12 != PLT_FIRST:
        return 0
    slot = at + 8 + _immediate(word[0])
    for insn in word[1:MAX_ADDS]:
        if insn >> 12 == PLT_LAST:
            return slot + (insn & 0xFFF) & A32.WRAP
        if insn >> 12 != PLT_NEXT:
            break
        slot += _immediate(insn)
    return 0


def _immediate(insn: int) -> int:
    """A modified immediate: eight bits, rotated to the right by twice the upper four (A5.2.4)."""
    turn = 2 * (insn >> 8 & 0xF)
    value = insn & 0xFF
    return (value >> turn | value << 32 - turn) & A32.WRAP
