# SPDX-License-Identifier: MIT
"""Instructions of LoongArch as numbers, over columns.

    bl addr     | 0x15 (6) | offs[15:0] (16) | offs[25:16] (10) |    ra = the next instruction
    b addr      | 0x14 (6) | offs[15:0] (16) | offs[25:16] (10) |

``offs`` is signed and counts instructions from this one. A pair reaches anywhere within 128 GB:

    pcaddu18i rd, high      | 0xf (7) | high (20) | rd (5) |            rd = pc + (high << 18)
    jirl zero, rd, low      | 0x13 (6) | low >> 2 (16) | rd (5) | 0 |   go to rd + low

``low`` is signed, so ``high`` is rounded: (distance + 0x20000) >> 18. An address within 2 GB:

    pcaddu12i rd, high      | 0xe (7) | high (20) | rd (5) |            rd = pc + (high << 12)
    addi.d rd, rd, low      | 0xb (10) | low (12) | rd (5) | rd (5) |

Other branches have ``offs`` in fields of one register or of none:

    beq rj, rd, addr        | 0x16 (6) | offs[15:0] (16) | rj (5) | rd (5) |
    beqz rj, addr           | 0x10 (6) | offs[15:0] (16) | rj (5) | offs[20:16] (5) |

Neither Keystone nor Capstone 5 has LoongArch, so there are no templates here: the tests compare
with GNU as and objdump. Encodings: LoongArch Reference Manual, volume 1, 2.2 ("Basic Integer
Instructions") and appendix B ("Table of Instruction Encoding").
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64

__all__ = [
    "LA",
    "address_of",
    "branch",
    "branch_form",
    "branch_target",
    "distance_of",
    "is_branch",
    "long_jump",
    "signed",
    "upper",
    "words",
]


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
    PCADDU12I, ADDI_D = 0x1C00_0000, 0x02C0_0000  # pcaddu12i rd, si20; addi.d rd, rj, si12
    NEAR = 1 << 31  # of such a pair
    BRANCHES: ClassVar[dict[str, tuple[int, int, int]]] = {
        # name: mask, value, and the bits of offs.
        "b": (0xFC00_0000, 0x5000_0000, 26),
        "bl": (0xFC00_0000, 0x5400_0000, 26),
        "beqz": (0xFC00_0000, 0x4000_0000, 21),
        "bnez": (0xFC00_0000, 0x4400_0000, 21),
        "bceqz": (0xFC00_0300, 0x4800_0000, 21),
        "bcnez": (0xFC00_0300, 0x4800_0100, 21),
        "jiscr0": (0xFC00_03E0, 0x4800_0200, 21),  # of the extension for binary translation
        "jiscr1": (0xFC00_03E0, 0x4800_0300, 21),
        "beq": (0xFC00_0000, 0x5800_0000, 16),
        "bne": (0xFC00_0000, 0x5C00_0000, 16),
        "blt": (0xFC00_0000, 0x6000_0000, 16),
        "bge": (0xFC00_0000, 0x6400_0000, 16),
        "bltu": (0xFC00_0000, 0x6800_0000, 16),
        "bgeu": (0xFC00_0000, 0x6C00_0000, 16),
    }


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
    return signed(insn >> 5, 20)


def signed(value: int, bits: int) -> int:
    """The lowest bits of a number, signed."""
    return (value & (1 << bits) - 1 ^ 1 << bits - 1) - (1 << bits - 1)


def branch_form(insn: int) -> str:
    """Name in LA.BRANCHES of a branch to a fixed target; empty for another instruction."""
    if not 0x4000_0000 <= insn < 0x7000_0000:
        return ""
    forms = LA.BRANCHES.items()
    return next((name for name, (mask, value, _) in forms if insn & mask == value), "")


def distance_of(insn: int, form: str) -> int:
    """Distance that a branch of a form goes (bytes)."""
    bits = LA.BRANCHES[form][2]
    offs = insn >> 10 & 0xFFFF
    if bits > 16:
        offs |= (insn & (1 << bits - 16) - 1) << 16
    return signed(offs, bits) * 4


def address_of(at: int, addr: int, register: int) -> bytes:
    """pcaddu12i register, high; addi.d register, register, low, of addr, at address ``at``; empty
    where addr is more than 2 GB away."""
    distance = addr - at
    if not -LA.NEAR - 0x800 <= distance < LA.NEAR - 0x800:
        return b""
    high, low = distance + 0x800 >> 12 & 0xF_FFFF, distance & 0xFFF
    pair = LA.PCADDU12I | high << 5 | register, LA.ADDI_D | low << 10 | register << 5 | register
    return b"".join(insn.to_bytes(4, "little") for insn in pair)
