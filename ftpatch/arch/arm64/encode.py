# SPDX-License-Identifier: MIT
"""Instructions of AArch64 as numbers, over columns.

Encodings: Arm ARM (DDI 0487) C6.2, of NOP, ORR (MOV register), BL, B, ADRP, ADD (immediate), BR.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.assemble import template
from ftpatch.arch.contract import U8, U64

__all__ = ["A64", "address_of", "branch", "branch_target", "words"]


class A64:
    """Instructions, their masks, and limits of branches (bytes)."""

    NOP = 0xD503201F  # nop
    MOV_X9_LR = 0xAA1E03E9  # mov x9, x30
    BL, BL_MASK = 0x94000000, 0xFC000000  # bl imm26
    B, B_MASK = 0x14000000, 0xFC000000  # b imm26
    BTI = (0xD503245F, 0xD503249F, 0xD50324DF, 0xD503241F)  # bti c; bti j; bti jc; bti
    LOAD_OPS = (0x927DF3CB, 0xF85F016B)  # bic x11, x30, #7 (as and); ldur x11, [x11, #-16]
    REACH = 1 << 27  # bytes either way of an imm26 branch: +-128 MB
    WRAP = 0xFFFF_FFFF_FFFF_FFFF


def words(code: U8) -> NDArray[np.uint32]:
    """Rows of bytes as rows of little-endian instructions."""
    return np.ascontiguousarray(code).view("<u4")


def branch(opcode: int, ip: U64, addr: U64) -> NDArray[np.uint32]:
    """``opcode`` with the distance from ip to addr in its imm26, uint32[n]."""
    distance = (addr - ip).view(np.int64) >> 2
    return (np.uint32(opcode) | (distance & 0x03FF_FFFF).astype(np.uint32)).astype("<u4")


def branch_target(insn: NDArray[np.uint32], ip: U64) -> U64:
    """Targets of imm26 branches at ip, uint64[n]."""
    imm = (insn << np.uint32(6)).view(np.int32).astype(np.int64) >> 6
    return ip + (imm << 2).view(np.uint64)


def address_of(at: int, addr: int, register: str) -> bytes:
    """adrp register, addr; add register, register, :lo12:addr at address ``at``; empty where addr
    is more than 4 GB away."""
    pages = (addr >> 12) - (at >> 12)
    if not -(1 << 20) <= pages < 1 << 20:
        return b""
    text = f"adrp {register}, 0x1000; add {register}, {register}, #0"
    code = template("arm64", text, ("adrp", "add"), 0x1000)
    adrp, add = (int.from_bytes(code[i : i + 4], "little") for i in (0, 4))
    adrp |= (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5  # immlo, immhi
    add |= (addr & 0xFFF) << 10  # imm12
    return adrp.to_bytes(4, "little") + add.to_bytes(4, "little")
