# SPDX-License-Identifier: MIT
"""Instructions of LoongArch that stand at sites, in veneers, PLT entries and at functions' ends, as
GNU objdump prints them; ``.word`` for the others."""

from __future__ import annotations

from typing import Final

import numpy as np

from ftpatch.arch.instructions import Instruction
from ftpatch.arch.loongarch64.encode import LA, branch_target, is_branch, upper
from ftpatch.core.columns import addresses

__all__ = ["read"]

REGISTERS: Final = (
    *("$zero", "$ra", "$tp", "$sp"),
    *(f"$a{number}" for number in range(8)),
    *(f"$t{number}" for number in range(9)),
    *("$r21", "$fp"),
    *(f"$s{number}" for number in range(9)),
)
"""LoongArch ELF psABI, "Register Convention"."""
OR, OR_MASK = 0x0015_0000, 0xFFFF_FC00  # or rd, rj, $zero: move
JIRL = 0x4C00_0000  # jirl rd, rj, offs16
RET = 0x4C00_0020  # ret: jirl $zero, $ra, 0
JR, JR_MASK = 0x4C00_0000, 0xFFFF_FC1F  # jirl $zero, rj, 0
BREAK, BREAK_MASK = 0x002A_0000, 0xFFFF_8000  # break code
PCADDU18I, PCADDU12I, SI20_MASK = 0x1E00_0000, 0x1C00_0000, 0xFE00_0000
BRANCHES: Final = {LA.BL: "bl", LA.B: "b"}


def read(code: bytes, address: int) -> list[Instruction]:
    """Read all whole words of ``code`` at ``address``."""
    words = np.frombuffer(code[: len(code) // 4 * 4], "<u4")
    places = enumerate(words.tolist())
    return [_instruction(word, address + 4 * number) for number, word in places]


def _instruction(word: int, address: int) -> Instruction:
    insn = np.array([word], "<u4")
    for opcode, name in BRANCHES.items():
        if is_branch(insn, opcode)[0]:
            target = int(branch_target(insn, addresses(address))[0])
            return Instruction(address, 4, name, hex(target), target)
    rd, rj = REGISTERS[word & 31], REGISTERS[word >> 5 & 31]
    if word == LA.NOP:
        mnemonic, operands = "nop", ""
    elif word & OR_MASK == OR:
        mnemonic, operands = "move", f"{rd}, {rj}"
    elif word == RET:
        mnemonic, operands = "ret", ""
    elif word & JR_MASK == JR:
        mnemonic, operands = "jr", rj
    elif word & LA.OPCODE == JIRL:
        distance = ((word >> 10 & 0xFFFF ^ 0x8000) - 0x8000) * 4
        mnemonic, operands = "jirl", f"{rd}, {rj}, {distance}"
    elif word & SI20_MASK in (PCADDU18I, PCADDU12I):
        name = "pcaddu18i" if word & SI20_MASK == PCADDU18I else "pcaddu12i"
        mnemonic, operands = name, f"{rd}, {upper(word)}"
    elif word & BREAK_MASK == BREAK:
        mnemonic, operands = "break", hex(word & 0x7FFF)
    else:
        mnemonic, operands = ".word", f"{word:#010x}"
    return Instruction(address, 4, mnemonic, operands, None)
