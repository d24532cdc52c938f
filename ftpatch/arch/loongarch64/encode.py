# SPDX-License-Identifier: MIT
"""Instructions of LoongArch as numbers, over columns.

    bl addr     | 0x15 (6) | offs[15:0] (16) | offs[25:16] (10) |    ra = the next instruction
    b addr      | 0x14 (6) | offs[15:0] (16) | offs[25:16] (10) |

``offs`` is signed and counts instructions from this one. A pair reaches anywhere within 128 GB:

    pcaddu18i rd, high      | 0xf (7) | high (20) | rd (5) |            rd = pc + (high << 18)
    jirl zero, rd, low      | 0x13 (6) | low >> 2 (16) | rd (5) | 0 |   go to rd + low

``low`` is signed, so ``high`` is rounded: (distance + 0x20000) >> 18.

Neither Keystone nor Capstone 5 has LoongArch, so there are no templates here: the tests compare
with GNU as and objdump. Encodings: LoongArch Reference Manual, volume 1, 2.2 ("Basic Integer
Instructions") and appendix B ("Table of Instruction Encoding").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64

__all__ = ["LA", "branch", "branch_target", "is_branch", "long_jump", "upper", "words"]


class LA:
    """Instructions, their masks, and limits of branches (bytes)."""

    NOP = 0x0340_0000  # nop: andi $zero, $zero, 0
    MOVE_T0_RA = 0x0015_002C  # move $t0, $ra: or $t0, $ra, $zero
    BL = 0x5400_0000  # bl offs26
    B = 0x5000_0000  # b offs26
    OPCODE = 0xFC00_0000
    REACH = 1 << 27
    PCADDU18I_T1 = 0x1E00_000D  # pcaddu18i $t1, si20
    JIRL_ZERO_T1 = 0x4C00_01A0  # jirl $zero, $t1, offs16
    PCADDU12I_T3 = 0x1C00_000F  # pcaddu12i $t3, si20
    LD_D_T3_T3 = 0x28C0_01EF  # ld.d $t3, $t3, si12
    JIRL_T1_T3 = 0x4C00_01ED  # jirl $t1, $t3, 0
    LU12I_W_T1 = 0x1400_000D  # lu12i.w $t1, si20
    LU32I_D_T1 = 0x1600_000D  # lu32i.d $t1, si20
    LU52I_D_T1_T1 = 0x0300_01AD  # lu52i.d $t1, $t1, si12
    SI20 = 0xFE00_001F  # the mask of what is not si20: opcode and rd
    OFFS16 = 0xFC00_03FF  # ... not offs16: opcode, rj and rd
    SI12 = 0xFFC0_03FF  # ... not si12: opcode, rj and rd
    FAR = 1 << 37  # of a pair
    ROUND = 1 << 17


def words(code: U8) -> NDArray[np.uint32]:
    """Rows of bytes as rows of little-endian instructions."""
    return np.ascontiguousarray(code).view("<u4")


def branch(opcode: int, ip: U64, addr: U64) -> NDArray[np.uint32]:
    """``opcode`` (bl or b) at each ip that goes to addr, uint32[n]."""
    offs = ((addr - ip).view(np.int64) >> 2).astype("<u4")
    low, high = offs & np.uint32(0xFFFF), offs >> np.uint32(16) & np.uint32(0x3FF)
    return np.asarray(np.uint32(opcode) | low << np.uint32(10) | high, "<u4")


def branch_target(insn: NDArray[np.uint32], ip: U64) -> U64:
    """Targets of such branches at ip, uint64[n]."""
    low = (insn >> np.uint32(10) & np.uint32(0xFFFF)).astype(np.int64)
    high = (insn << np.uint32(22)).view(np.int32).astype(np.int64) >> 22  # ten bits, signed
    return ip + ((high << 16 | low) << 2).view(np.uint64)


def is_branch(insn: NDArray[np.uint32], opcode: int) -> NDArray[np.bool_]:
    """Test which are ``opcode``, with any distance."""
    return np.asarray(insn & np.uint32(LA.OPCODE) == opcode)


def long_jump(at: int, addr: int) -> bytes:
    """pcaddu18i $t1, high; jirl $zero, $t1, low, at address ``at``; empty where ``addr`` is out of
    reach."""
    distance = addr - at
    if distance % 4 or not -LA.FAR <= distance < LA.FAR - LA.ROUND:
        return b""
    high = (distance + LA.ROUND >> 18) & 0xF_FFFF
    pair = LA.PCADDU18I_T1 | high << 5, LA.JIRL_ZERO_T1 | (distance >> 2 & 0xFFFF) << 10
    return b"".join(insn.to_bytes(4, "little") for insn in pair)


def upper(insn: int) -> int:
    """si20 of an instruction, signed."""
    return ((insn >> 5 & 0xF_FFFF) ^ 1 << 19) - (1 << 19)
