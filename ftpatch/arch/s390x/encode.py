# SPDX-License-Identifier: MIT
"""Instructions of z/Architecture as numbers, over columns: one branch reaches anywhere within 4 GB.

    brasl r0, addr   c0 05 disp32    r0 = the next instruction, go to addr
    brcl  m, addr    c0 m4 disp32    go to addr if m allows it: 0 never, 15 always

``disp32`` is signed and counts halfwords from the instruction's own address. Keystone takes the
distance from the wrong address, so there are no templates here: the tests compare with GNU as and
Capstone. Encodings: z/Architecture Principles of Operation (SA22-7832), chapter 7, "BRANCH RELATIVE
AND SAVE LONG", "BRANCH RELATIVE ON CONDITION LONG", "LOAD ADDRESS RELATIVE LONG".
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64
from ftpatch.core.byte_order import BIG

__all__ = ["Z", "branch", "branch_target", "opcodes"]

HALF: Final = np.int64(2)


class Z:
    """Instructions (the first halfword of those that are followed by a distance), and limits."""

    SIZE = 6
    BRASL_R0 = 0xC005  # brasl %r0, addr
    BRASL_R1 = 0xC015  # brasl %r1, addr
    BRASL_R14 = 0xC0E5  # brasl %r14, addr
    BRCL_0 = 0xC004  # brcl 0, addr: jgnop
    BRCL_15 = 0xC0F4  # brcl 15, addr: jg
    LARL_R1 = 0xC010  # larl %r1, addr
    LG_R1 = bytes.fromhex("e310 1000 0004 07f1")  # lg %r1, 0(%r1); br %r1
    NOPR = 0x0700  # nopr %r0, 2 bytes
    NOP = bytes.fromhex("4700 0000")  # nop: bc 0, 0
    REACH = 1 << 32
    PADS = np.array(
        [
            list(bytes.fromhex("c004 0000 0000")),  # brcl 0, .
            list(bytes.fromhex("0700 0700 0700")),  # nopr; nopr; nopr
        ],
        np.uint8,
    )


def opcodes(code: U8) -> NDArray[np.uint16]:
    """The first halfword of each row."""
    return BIG.unsigned(np.ascontiguousarray(code[:, :2]), 2).astype(np.uint16)


def branch(opcode: int, ip: U64, addr: U64) -> U8:
    """The instruction at each ip that leads to ``addr``, uint8[n, 6]."""
    code = np.empty((len(ip), Z.SIZE), np.uint8)
    code[:, :2] = list(BIG.packed(opcode, 2))
    code[:, 2:] = BIG.rows((addr - ip).view(np.int64) // HALF, 4)
    return code


def branch_target(code: U8, ip: U64) -> U64:
    """Targets of instructions at ``ip``, uint64[n]."""
    distance = BIG.signed(np.ascontiguousarray(code[:, 2:6]), 4) * HALF
    return ip + distance.view(np.uint64)
