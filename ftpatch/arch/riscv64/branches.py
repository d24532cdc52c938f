# SPDX-License-Identifier: MIT
"""Branches of riscv64. Since instructions have two or four bytes, every second byte is taken for
the start of one:

    jal                        1 MB either way
    beq, bne, blt, ...         4 KB
    c.j                        2 KB
    auipc rd; jalr rd'(rd)     2 GB
    c.beqz, c.bnez             256 bytes: the short ones

Of those that look so many are none, so the real instructions decide where a short one hits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.branches import I64, Branches, jumps_out
from ftpatch.arch.contract import U8
from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.riscv64.encode import RV, branch_distance, pair_target

__all__ = ["BRANCHES"]

LINKS: Final = ("ra", "t0")
"""Registers that hold return addresses (the manual, "Return-address stack prediction hints")."""
CALLS: Final = ("call", "jal", "c.jalr")
NEAR: Final = 264
"""The range of a short branch plus one instruction of eight bytes (a pair)."""


def _halves(code: U8) -> NDArray[np.uint32]:
    """The four bytes at every second one, as a number; zeros behind the end."""
    half = np.frombuffer(code[: len(code) // 2 * 2].tobytes(), "<u2").astype(np.uint32)
    return np.asarray(half | np.append(half[1:], np.uint32(0)) << np.uint32(16), np.uint32)


def _long(code: U8, address: int) -> I64:
    """Targets of all but the short ones; int64, sorted."""
    insn = _halves(code)
    found = []
    for form in ("jal", "branch", "c.j"):
        mask, value = RV.FORMS[form]
        at = np.flatnonzero(insn & np.uint32(mask) == value)
        found.append(address + 2 * at + branch_distance(form, insn[at]))
    first, second = insn[:-2], insn[2:]
    pairs = (first & np.uint32(0x7F) == RV.AUIPC) & (second & np.uint32(0x707F) == RV.JALR)
    pairs &= first >> np.uint32(7) & np.uint32(31) == second >> np.uint32(15) & np.uint32(31)
    at = np.flatnonzero(pairs)
    place = (address + 2 * at).astype(np.int64).view(np.uint64)
    held = np.stack([first[at], second[at]], axis=1)
    found.append(pair_target(held, place).view(np.int64))
    return np.sort(np.concatenate(found))


def _short(code: U8, address: int) -> I64:
    """Targets of c.beqz and c.bnez; int64, sorted."""
    insn = _halves(code)
    mask, value = RV.FORMS["c.b"]
    at = np.flatnonzero(insn & np.uint32(mask) == value)
    return np.asarray(np.sort(address + 2 * at + branch_distance("c.b", insn[at])), np.int64)


def _through(insn: Instruction) -> str:
    """The register that an instruction jumps through without a link; empty for others, and for
    returns."""
    words = insn.operands.split(", ")
    if insn.mnemonic == "c.jr":
        register = words[0]
    elif insn.mnemonic == "jalr" and words[0] == "zero":
        register = words[1]
    else:
        return ""
    return "" if register in LINKS else register


def _has_indirect_jump(instructions: Iterable[Instruction]) -> bool:
    """Return whether one of them is a jump through a register, which is not of a pair (a far tail
    call): a table may lead anywhere in the function."""
    before = ""
    for insn in instructions:
        register = _through(insn)
        if register and register != before:
            return True
        before = insn.operands.split(", ")[0] if insn.mnemonic == "auipc" else ""
    return False


def _is_thunk(instructions: Iterable[Instruction]) -> bool:
    """Return whether they only jump to where a caller's register points."""
    first = next(iter(instructions), None)
    return first is not None and bool(_through(first))


BRANCHES: Final = Branches(
    long_targets=_long,
    short_targets=_short,
    has_indirect_jump=_has_indirect_jump,
    is_thunk=_is_thunk,
    jumps_out=jumps_out(lambda insn: insn.mnemonic.startswith(CALLS)),
    near=NEAR,
)
