# SPDX-License-Identifier: MIT
"""Instructions of A32 (ARM) and T32 (Thumb) as numbers, over columns.

    bl  addr    cond 1011 imm24                              A32: both are A32
    blx addr    1111 101H imm24                              the callee is T32
    bl  addr    11110 S imm10  11 J1 1 J2 imm11              T32: both are T32
    blx addr    11110 S imm10H 11 J1 0 J2 imm10L 0           the callee is A32

imm24 counts words from the instruction's address + 8, the others halfwords from + 4 (blx: from that
rounded down to a word). Bit 0 of an address says that T32 is there, as in symbols. Keystone has but
one of the sets at a time, and its ``pop {lr}`` is another instruction than the kernel's, so there
are no templates here: the tests compare with GNU as and Capstone.

Code that goes on elsewhere, of link editors and of ftpatch:

    b addr
    ldr pc, [pc, #-4]; .word addr
    ldr ip, [pc]; bx ip; .word addr                                into T32
    ldr ip, [pc]; add pc, pc, ip; .word addr - (at + 12)
    ldr ip, [pc, #4]; add ip, pc, ip; bx ip; .word addr - (at + 12)
    ldr.w pc, [pc]; .word addr                                     in T32
    [bx pc; nop;] add ip, pc, #A; add ip, ip, #B; ldr pc, [ip, #C]!      an entry of a PLT

Encodings: Arm ARM (DDI 0406C) A8.8.25 (BL, BLX immediate), A8.8.119 (NOP), A8.8.133 (PUSH),
A8.8.131 (POP), A8.8.9 (ADD, SP plus immediate), A8.8.18 (B). Stubs:
binutils' bfd/elf32-arm.c; ELF for the Arm Architecture, 5.3 "PLT Sequences and Usage Models".
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64
from ftpatch.core.columns import addresses

__all__ = ["A32", "T32", "halves", "link", "linked", "stub_target", "words"]

U32 = NDArray[np.uint32]
ONE: Final = np.uint64(1)
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


class A32:
    """Instructions of four bytes, and limits of branches (bytes)."""

    PUSH_LR = (0xE52D_E004, 0xE92D_4000)  # push {lr}: str lr, [sp, #-4]!; stmdb sp!, {lr}
    ADD_SP = 0xE28D_D004  # add sp, sp, #4
    POP_LR = 0xE8BD_4000  # pop {lr}: ldmia sp!, {lr}
    NOPS = (0xE320_F000, 0xE1A0_0000)  # nop; mov r0, r0
    BL = 0xEB00_0000  # bl addr
    BLX = 0xFA00_0000  # blx addr
    B = 0xEA00_0000  # b addr
    UNLINKED = 0xEBFF_FFFE  # bl of itself
    H = 0x0100_0000  # bit 1 of blx's distance
    IMM = 0x00FF_FFFF
    REACH = 1 << 25  # bytes either way: +-32 MB
    WRAP = 0xFFFF_FFFF


class T32:
    """The same of two bytes, or of four, as a little-endian word has them: the second halfword is
    the upper one."""

    PUSH_LR = 0xB500  # push {lr}
    ADD_SP = 0x0D04_F10D  # add.w sp, sp, #4: f10d 0d04
    POP_LR = 0xEB04_F85D  # pop.w {lr}: f85d eb04
    NOPS = (0xBF00, 0x46C0)  # nop; mov r8, r8
    BL = 0xD000_F000  # bl addr
    BLX = 0xC000_F000  # blx addr
    MASK = 0xD000_F800
    UNLINKED = 0xFFFE_F7FF  # bl of itself: f7ff fffe
    REACH = 1 << 24  # bytes either way: +-16 MB


def words(code: U8) -> U32:
    """Rows of bytes as rows of words."""
    return np.ascontiguousarray(code).view("<u4")


def halves(code: U8) -> NDArray[np.uint16]:
    """Rows of bytes as rows of halfwords."""
    return np.ascontiguousarray(code).view("<u2")


def link(ip: U64, addr: U64, thumb: NDArray[np.bool_]) -> U32:
    """``bl addr`` at each ip, or ``blx addr`` where the other set is there, uint32[n]; ``thumb``:
    ip is in T32."""
    odd = (addr & ONE).astype(bool)
    to = addr & ~ONE
    far = _signed(to - ip - np.uint64(8))
    arm = np.uint32(A32.BL) | (far >> 2).astype(np.uint32) & np.uint32(A32.IMM)
    half = (far >> 1 & 1).astype(np.uint32) * np.uint32(A32.H)
    arm = np.where(odd, arm & np.uint32(A32.IMM) | np.uint32(A32.BLX) | half, arm)
    base = np.where(odd, ip, ip & ~np.uint64(3)) + np.uint64(4)
    near = _signed(to - base)
    sign = near >> 24 & 1
    j1, j2 = (1 ^ (near >> bit & 1) ^ sign for bit in (23, 22))
    first = sign << 10 | near >> 12 & 0x3FF
    second = j1 << 13 | j2 << 11 | near >> 1 & 0x7FF
    short = (second << 16 | first).astype(np.uint32)
    short |= np.where(odd, np.uint32(T32.BL), np.uint32(T32.BLX))
    return np.asarray(np.where(thumb, short, arm), np.uint32)


def linked(insn: U32, ip: U64, thumb: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], U64]:
    """Test which are ``bl`` or ``blx``, bool[n]; and where these at ip go to, uint64[n]."""
    top = insn & np.uint32(0xFF00_0000)
    arm_bl = top == A32.BL
    arm_blx = top & np.uint32(0xFE00_0000) == A32.BLX
    far = (insn << np.uint32(8)).view(np.int32).astype(np.int64) >> 6
    far += np.where(arm_blx, (top >> np.uint32(23) & np.uint32(2)).astype(np.int64) | 1, 0)
    arm = ip + np.uint64(8) + far.view(np.uint64)
    kind = insn & np.uint32(T32.MASK)
    short_bl, short_blx = kind == T32.BL, kind == T32.BLX
    short_blx &= insn & np.uint32(0x1_0000) == 0
    wide = insn.astype(np.int64)
    sign = wide >> 10 & 1
    i1, i2 = (1 ^ (wide >> bit & 1) ^ sign for bit in (29, 27))
    near = i1 << 23 | i2 << 22 | (wide & 0x3FF) << 12 | (wide >> 16 & 0x7FF) << 1
    near -= sign << 24
    base = np.where(short_bl, ip | ONE, ip & ~np.uint64(3)) + np.uint64(4)
    short = base + near.view(np.uint64)
    call = np.where(thumb, short_bl | short_blx, arm_bl | arm_blx)
    addr = np.where(thumb, short, arm) & np.uint64(A32.WRAP)
    return np.asarray(call, bool), np.where(call, addr, np.uint64(0))


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


def _signed(distance: U64) -> NDArray[np.int64]:
    """Distances in an address space of 32 bits."""
    return distance.astype(np.uint32).view(np.int32).astype(np.int64)
