# SPDX-License-Identifier: MIT
"""Instructions of the Power ISA as numbers, over columns.

    bl addr     | 18 | LI, 24 bits | AA 0 | LK 1 |      next = this + LI * 4, LR = this + 4
    b addr      | 18 | LI, 24 bits | AA 0 | LK 0 |

Encodings: Power ISA 3.1, book I, 2.4 ("Branch Instructions", I-form), 3.3 (ORI: ``nop``;
MFSPR: ``mflr``; ADDIS, ADDI, ADD, LD).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64

__all__ = ["PPC", "branch", "branch_target", "is_branch", "is_global_entry", "words"]


class PPC:
    """Instructions, their masks, and limits of branches (bytes)."""

    NOP = 0x6000_0000  # nop: ori 0,0,0
    MFLR_R0 = 0x7C08_02A6  # mflr r0
    BL = 0x4800_0001  # bl LI
    B = 0x4800_0000  # b LI
    LI = 0x03FF_FFFC
    IMM = 0xFFFF
    # addis r2,r12,imm; lis r2,imm (of a linker that knows r2); ld r2,imm(r12)
    FIRST = (0x3C4C_0000, 0x3C40_0000, 0xE84C_0000)
    ADDI_R2_R2 = 0x3842_0000  # addi r2,r2,imm
    ADD_R2_R2_R12 = 0x7C42_6214  # add r2,r2,r12
    STD_R2 = 0xF841_0018  # std r2,24(r1)
    ADDIS_R12_R2 = 0x3D82_0000  # addis r12,r2,imm
    LD_R12_R12 = 0xE98C_0000  # ld r12,imm(r12)
    LD_R12_R2 = 0xE982_0000  # ld r12,imm(r2)
    MTCTR_R12 = 0x7D89_03A6  # mtctr r12
    BCTR = 0x4E80_0420  # bctr
    REACH = 1 << 25  # bytes either way: +-32 MB
    WRAP = 0xFFFF_FFFF_FFFF_FFFF


def words(code: U8) -> NDArray[np.uint32]:
    """Rows of bytes as rows of little-endian instructions."""
    return np.ascontiguousarray(code).view("<u4")


def branch(opcode: int, ip: U64, addr: U64) -> NDArray[np.uint32]:
    """``opcode`` with the distance from ip to addr in its LI, uint32[n]."""
    distance = (addr - ip).astype("<u4") & np.uint32(PPC.LI)
    return np.asarray(np.uint32(opcode) | distance, "<u4")


def branch_target(insn: NDArray[np.uint32], ip: U64) -> U64:
    """Targets of such branches at ip, uint64[n]."""
    distance = (insn << np.uint32(6)).view(np.int32).astype(np.int64) >> 8  # in instructions
    return ip + (distance << 2).view(np.uint64)


def is_branch(insn: NDArray[np.uint32], opcode: int) -> NDArray[np.bool_]:
    """Test which are ``opcode``, with any LI."""
    return np.asarray(insn & np.uint32(~PPC.LI & 0xFFFF_FFFF) == opcode)


def is_global_entry(code: bytes) -> bool:
    """Test for the two instructions that make r2 of r12: ``addis; addi``, or, in the large code
    model, ``ld; add``."""
    first, second = (int.from_bytes(code[n : n + 4], "little") for n in (0, 4))
    if first & ~PPC.IMM == PPC.FIRST[2]:
        return second == PPC.ADD_R2_R2_R12
    return first & ~PPC.IMM in PPC.FIRST[:2] and second & ~PPC.IMM == PPC.ADDI_R2_R2
