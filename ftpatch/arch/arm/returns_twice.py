# SPDX-License-Identifier: MIT
"""Functions of 32-bit ARM that can return more than once per call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

POINTER = re.compile(r"(\w+), (\w+)(?:, #(?:0x)?[0-9a-f]+)?")
STORED = re.compile(r"(\w+)!?, \{(.+)\}")
CALLEE = frozenset({*(f"r{n}" for n in range(4, 12)), "sb", "sl", "fp"})
SETS = ("mov", "nop", "ldr", "add", "cmp")
ENDS = ("b", "bx", "bl", "blx", "cbz", "cbnz")
VFORK = 190
"""System call, in r7: arch/arm/tools/syscall.tbl."""


def _known(insns: Sequence[Instruction]) -> bool:
    pointers, kept, number, framed = {"r0"}, set[str](), -1, False
    for one in insns:
        name, operands = one.mnemonic.split(".")[0], one.operands
        if name == "svc" and number == VFORK:
            return True
        if name in ENDS:
            break
        framed |= name == "push" or operands.startswith("sp")  # in which the registers are kept
        stored = STORED.fullmatch(operands) if name.startswith("stm") and not framed else None
        if stored and stored[1] in pointers:
            kept |= {*stored[2].split(", ")} & CALLEE
        elif name in ("mov", "add") and (same := POINTER.fullmatch(operands)):
            pointers = pointers | {same[1]} if same[2] in pointers else pointers - {same[1]}
        if name in ("mov", "movw", "movs") and operands.startswith("r7, #"):
            number = int(operands[5:], 0)
    return len(kept) >= MIN_SAVED


TWICE: Final = Twice(_known, SETS)
