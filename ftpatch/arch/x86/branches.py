# SPDX-License-Identifier: MIT
"""Branches of x86. Since instruction boundaries are unknown, every byte is taken for the start
of one:

    e8, e9         rel32      call, jmp
    0f 80 - 0f 8f  rel32      jcc
    c7 f8          rel32      xbegin
    eb             rel8       jmp
    70 - 7f        rel8       jcc
    e0 - e3        rel8       loop, jrcxz

This finds more than there is. After the start of libc's and libstdc++'s functions, a rel32 hits one
window of four bytes in two thousand, but a rel8 one in twenty. Short branches stay near, so where
one hits, the real instructions, decoded from the start of each surrounding function, decide.

After insn_jump_into_range and insn_is_indirect_jump, arch/x86/kernel/kprobes/opt.c. Opcodes: Intel
SDM volume 2, Jcc, JMP, CALL, LOOP, XBEGIN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import numpy as np

from ftpatch.arch.branches import I64, Branches, jumps_out
from ftpatch.arch.contract import U8
from ftpatch.arch.disassemble import Instruction

__all__ = [
    "has_indirect_jump",
    "is_thunk",
    "long_targets",
    "short_targets",
    "x86_branches",
]

SHORT: Final = np.zeros(256, bool)
"""First bytes of branches with rel8."""
SHORT[[0xEB, *range(0x70, 0x80), *range(0xE0, 0xE4)]] = True


NEAR: Final = 144
"""The range of a rel8 plus one instruction (bytes)."""
TOP = re.compile(r"(?:.*, )?\(%[re]sp\)")
"""Operands that write what ``ret`` pops."""
READS = ("f", "test", "cmp", "push", "call")
"""Mnemonics of instructions that only read there, of the x87 too."""
FIXED = re.compile(r"\*(?:0x[0-9a-f]+|\d+)")
"""A jump through a slot at a fixed place, on 32 bits."""
IDLE = frozenset(["endbr64", "endbr32", "nop", "nopw", "nopl", "lfence", "pause"])


def long_targets(code: U8, address: int) -> I64:
    """Targets of every rel32 in ``code``, which is at ``address``; int64, sorted."""
    first, second = code[:-1], code[1:]
    one = np.flatnonzero((first & 0xFE) == 0xE8)
    two = ((first == 0x0F) & ((second & 0xF0) == 0x80)) | ((first == 0xC7) & (second == 0xF8))
    field = np.concatenate([one + 1, np.flatnonzero(two) + 2])
    field = field[field + 4 <= len(code)]
    # The four bytes at any offset, as one number.
    rel = np.zeros(len(field), np.uint32)
    for i in range(4):
        rel |= code[field + i].astype(np.uint32) << np.uint32(8 * i)
    return np.sort(address + field + 4 + rel.view(np.int32))


def short_targets(code: U8, address: int) -> I64:
    """Targets of every rel8 in ``code``, which is at ``address``; int64, sorted."""
    at = np.flatnonzero(SHORT[code[:-1]])
    return np.sort(address + at + 2 + code[at + 1].view(np.int8))


def _jumps_anywhere(insn: Instruction) -> bool:
    """Return whether it jumps through a register or memory. A jump through a slot at a fixed place
    (PLT, tail call through the GOT) does not count: it goes to a function's start."""
    *_, name = insn.mnemonic.split()  # bnd, notrack
    slot = "(%rip)" in insn.operands or FIXED.fullmatch(insn.operands)
    return name.startswith("ljmp") or (
        name in ("jmp", "jmpq", "jmpl") and "*" in insn.operands and not slot
    )


def has_indirect_jump(instructions: Iterable[Instruction]) -> bool:
    """Return whether one of them does, or returns to an address just pushed (retpolines), so that a
    table may lead anywhere in the function."""
    put = False
    for insn in instructions:
        *_, name = insn.mnemonic.split()
        if _jumps_anywhere(insn):
            return True
        if put and name.startswith(("ret", "lret", "iret")):
            return True
        written = bool(TOP.fullmatch(insn.operands)) and not name.startswith(READS)
        put = name.startswith("push") or written
    return False


def is_thunk(instructions: Iterable[Instruction]) -> bool:
    """Return whether they only jump to where a caller's register points, as with
    -mindirect-branch."""
    read = [insn for insn in instructions if insn.mnemonic not in IDLE]
    if read and read[0].mnemonic.endswith(("jmp", "jmpl")) and read[0].operands.startswith("*%"):
        return True
    return has_indirect_jump(insn for insn in read if "jmp" not in insn.mnemonic)


def x86_branches() -> Branches:
    """The branches of both word sizes."""
    return Branches(
        long_targets=long_targets,
        short_targets=short_targets,
        has_indirect_jump=has_indirect_jump,
        is_thunk=is_thunk,
        jumps_out=jumps_out(lambda insn: "call" in insn.mnemonic),
        near=NEAR,
    )
