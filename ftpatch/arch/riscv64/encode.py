# SPDX-License-Identifier: MIT
"""Instructions of RISC-V as numbers, over columns: a pair of them reaches anywhere within 2 GB.

    auipc rd, high          rd = pc + (high << 12)
    jalr  rd, low(rd)       pc = rd + low, rd = the next instruction

``low`` is signed, so ``high`` is rounded: (distance + 0x800) >> 12.

Keystone has no RISC-V, so there are no templates here: the tests compare with GNU as and Capstone.
Encodings: The RISC-V Instruction Set Manual, volume I, "RV32/64G Instruction Set Listings" and
"RVC Instruction Set Listings".
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64

__all__ = [
    "RV",
    "address_of",
    "branch_distance",
    "far_jump",
    "is_pair",
    "jump_word",
    "opcodes",
    "pair",
    "pair_target",
    "words",
]


class RV:
    """Instructions, their masks, registers, and limits of a pair (bytes)."""

    C_NOP = 0x0001  # c.nop, 2 bytes
    NOP = 0x0000_0013  # nop: addi x0, x0, 0
    AUIPC, AUIPC_MASK = 0x17, 0xFFF  # auipc rd, imm20; the mask keeps rd and opcode
    JALR, JALR_MASK = 0x67, 0xF_FFFF  # jalr rd, imm12(rs1); the mask keeps rs1, rd and opcode
    LD_T3, JALR_T1_T3 = 0x000E_3E03, 0x000E_0367  # ld t3, 0(t3); jalr t1, 0(t3)
    RA, GP, T0, T3 = 1, 3, 5, 28  # numbers of registers
    ROUND = 0x800
    REACH = 1 << 31
    JAL, BRANCH = 0x6F, 0x63  # jal rd, imm20; beq, bne, blt, bge, bltu, bgeu
    BRANCH_FIELD = 0xFE00_0F80  # imm12 of a branch
    JAL_REACH = 1 << 20
    FORMS: ClassVar[dict[str, tuple[int, int]]] = {
        # name: mask and value. Those of two bytes are told apart by the lowest two bits.
        "jal": (0x7F, JAL),
        "branch": (0x7F, BRANCH),
        "auipc": (0x7F, AUIPC),
        "ebreak": (0xFFFF_FFFF, 0x0010_0073),
        "jalr": (0x707F, JALR),
        "lr": (0xF9F0_607F, 0x1000_202F),  # lr.w, lr.d
        "sc": (0xF800_607F, 0x1800_202F),  # sc.w, sc.d
        "c.j": (0xE003, 0xA001),
        "c.b": (0xC003, 0xC001),  # c.beqz, c.bnez
        "c.ebreak": (0xFFFF, 0x9002),
        "c.jr": (0xF07F, 0x8002),
        "c.jalr": (0xF07F, 0x9002),
    }
    FIELDS: ClassVar[dict[str, tuple[tuple[int, int, int], ...]]] = {
        # Of their distances: from bit, so many, to bit; the last one has the sign.
        "jal": ((21, 10, 1), (20, 1, 11), (12, 8, 12), (31, 1, 20)),
        "branch": ((8, 4, 1), (25, 6, 5), (7, 1, 11), (31, 1, 12)),
        "c.j": (
            *((3, 3, 1), (11, 1, 4), (2, 1, 5), (7, 1, 6)),
            *((6, 1, 7), (9, 2, 8), (8, 1, 10), (12, 1, 11)),
        ),
        "c.b": ((3, 2, 1), (10, 2, 3), (2, 1, 5), (5, 2, 6), (12, 1, 8)),
    }
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


def branch_distance(form: str, insn: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Distances that branches of a form in RV.FIELDS go, int64[n]."""
    out = np.zeros(len(insn), np.int64)
    wide = insn.astype(np.int64)
    for at, bits, to in RV.FIELDS[form]:
        out |= (wide >> at & (1 << bits) - 1) << to
    sign = RV.FIELDS[form][-1][2]
    return out - ((out >> sign & 1) << sign + 1)


def jump_word(distance: int) -> int:
    """``j .+distance``, which must be in reach."""
    word = RV.JAL
    for to, bits, at in RV.FIELDS["jal"]:
        word |= (distance >> at & (1 << bits) - 1) << to
    return word


def address_of(at: int, addr: int, register: int) -> bytes:
    """auipc register, high; addi register, register, low, of addr, at address ``at``; empty where
    addr is more than 2 GB away."""
    return _with_low(at, addr, register, RV.NOP | register << 7)


def far_jump(at: int, to: int, register: int) -> bytes:
    """auipc register, high; jalr x0, low(register), at address ``at``; empty where ``to`` is more
    than 2 GB away."""
    return _with_low(at, to, register, RV.JALR)


def _with_low(at: int, addr: int, register: int, second: int) -> bytes:
    """auipc and the instruction that adds the rest of the distance to its register."""
    distance = addr - at
    if not -RV.REACH - RV.ROUND <= distance < RV.REACH - RV.ROUND:
        return b""
    auipc = RV.AUIPC | register << 7 | (distance + RV.ROUND) & 0xFFFF_F000
    second |= register << 15 | (distance & 0xFFF) << 20
    return auipc.to_bytes(4, "little") + second.to_bytes(4, "little")
