# SPDX-License-Identifier: MIT
"""Instructions of RISC-V as numbers, over columns: a pair of them reaches anywhere within 2 GB.

    auipc rd, high          rd = pc + (high << 12)
    jalr  rd, low(rd)       pc = rd + low, rd = the next instruction

``low`` is signed, so ``high`` is rounded: (distance + 0x800) >> 12.

Keystone has no RISC-V, so there are no templates here: the tests compare with GNU as and Capstone.
Encodings: The RISC-V Instruction Set Manual, volume I, "RV32I Base Integer Instruction Set" (AUIPC,
JALR, NOP) and "C Standard Extension" (C.NOP).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64

__all__ = ["RV", "is_pair", "opcodes", "pair", "pair_target", "words"]


class RV:
    """Instructions, their masks, registers, and limits of a pair (bytes)."""

    C_NOP = 0x0001  # c.nop, 2 bytes
    NOP = 0x0000_0013  # nop: addi x0, x0, 0
    AUIPC, AUIPC_MASK = 0x17, 0xFFF  # auipc rd, imm20; the mask keeps rd and opcode
    JALR, JALR_MASK = 0x67, 0xF_FFFF  # jalr rd, imm12(rs1); the mask keeps rs1, rd and opcode
    LD_T3, JALR_T1_T3 = 0x000E_3E03, 0x000E_0367  # ld t3, 0(t3); jalr t1, 0(t3)
    RA, T0, T3 = 1, 5, 28  # numbers of registers
    ROUND = 0x800
    REACH = 1 << 31
    PADS = (
        np.array([C_NOP | C_NOP << 16] * 2, "<u4"),  # c.nop; c.nop; c.nop; c.nop
        np.array([NOP] * 2, "<u4"),  # nop; nop
    )


def words(code: U8) -> NDArray[np.uint32]:
    """Rows of bytes as rows of little-endian words."""
    return np.ascontiguousarray(code).view("<u4")


def opcodes(link: int) -> tuple[int, int]:
    """``auipc link, 0`` and ``jalr link, 0(link)``."""
    return RV.AUIPC | link << 7, RV.JALR | link << 7 | link << 15


def pair(link: int, at: U64, addr: U64) -> NDArray[np.uint32]:
    """The pair at each address ``at`` that jumps to ``addr``, uint32[n, 2]."""
    auipc, jalr = opcodes(link)
    distance = (addr - at).astype("<u4")
    high = (distance + np.uint32(RV.ROUND)) & ~np.uint32(RV.AUIPC_MASK)
    code = np.empty((len(at), 2), "<u4")
    code[:, 0] = np.uint32(auipc) | high
    code[:, 1] = np.uint32(jalr) | (distance - high) << np.uint32(20)
    return code


def pair_target(insn: NDArray[np.uint32], at: U64) -> U64:
    """Targets of pairs at ``at``, uint64[n]."""
    high = (insn[:, 0] & ~np.uint32(RV.AUIPC_MASK)).view(np.int32).astype(np.int64)
    low = insn[:, 1].view(np.int32).astype(np.int64) >> 20
    return at + (high + low).view(np.uint64)


def is_pair(insn: NDArray[np.uint32], link: int) -> NDArray[np.bool_]:
    """Test which rows are a pair with this link register."""
    auipc, jalr = opcodes(link)
    first = insn[:, 0] & np.uint32(RV.AUIPC_MASK) == auipc
    return np.asarray(first & (insn[:, 1] & np.uint32(RV.JALR_MASK) == jalr))
