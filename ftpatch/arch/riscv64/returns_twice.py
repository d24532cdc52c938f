# SPDX-License-Identifier: MIT
"""Functions of riscv64 that can return more than once per call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

KEPT = re.compile(r"(s\d+|ra), (?:0x[0-9a-f]+|\d+)?\(a0\)")
SETS = ("addi", "c.li", "c.mv", "c.nop", "lui", "c.lui")
SAVED = frozenset(f"s{n}" for n in range(12))
CLONE, VFORK = 220, (0x40, 0x41)
"""System call of riscv64; its flags CLONE_VFORK, perhaps with CLONE_VM, above the signal."""


def _known(insns: Sequence[Instruction]) -> bool:
    kept, values = set[str](), dict[str, int]()
    for one in insns:
        name, operands = one.mnemonic, one.operands
        target, *given = operands.split(", ")
        if name in ("c.jr", "jalr", "c.jalr", "c.j", "jal", "j", "call"):
            break
        if target in ("sp", "ra") and name not in ("sd", "c.sd", "c.sdsp"):
            return False  # another stack, or it continues within itself
        if name in ("sd", "c.sd") and (saved := KEPT.fullmatch(operands)):
            kept.add(saved[1])
        elif name in ("lui", "c.lui"):
            values[target] = int(given[-1], 0) << 12
        elif name in ("addi", "addiw", "c.li", "c.addiw", "c.addi"):
            source = given[0] if len(given) > 1 else "" if name == "c.li" else target
            values[target] = values.get(source, 0) + int(given[-1], 0)
        elif name == "ecall" and values.get("a7") == CLONE and values.get("a0", 0) >> 8 in VFORK:
            return True
    return len(kept & SAVED) >= MIN_SAVED and "ra" in kept


TWICE: Final = Twice(_known, SETS)
