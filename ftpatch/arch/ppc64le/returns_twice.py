# SPDX-License-Identifier: MIT
"""Functions of ppc64le that can return more than once per call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

KEPT = re.compile(r"(r\d+), (?:0x[0-9a-f]+|\d+)?\(r3\)")
SETS = ("li", "addis", "addi", "mr", "nop", "cmp")
SAVED = frozenset(f"r{n}" for n in range(14, 32))
VFORK = 189
"""System call of ppc64le."""


def _known(insns: Sequence[Instruction]) -> bool:
    kept, values = set[str](), dict[str, int]()
    for one in insns:
        name, operands = one.mnemonic, one.operands
        target, *given = operands.split(", ")
        if name in ("blr", "bctr", "b") or (name == "ld" and target == "r1"):
            break
        if name == "std" and target in SAVED and operands.endswith("(r1)"):
            return False  # a frame of its own: swapcontext
        if name == "std" and (saved := KEPT.fullmatch(operands)):
            kept.add(saved[1])
        elif name == "li":
            values[target] = int(given[0], 0)
        elif name == "sc" and values.get("r0") == VFORK:
            return True
    return len(kept & SAVED) >= MIN_SAVED


TWICE: Final = Twice(_known, SETS)
