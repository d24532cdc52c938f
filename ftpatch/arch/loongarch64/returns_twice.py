# SPDX-License-Identifier: MIT
"""Functions of loongarch64 that can return more than once per call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

KEPT = re.compile(r"(\$s\d|\$fp), \$a0, \d+")
SETS = ("move", "li.", "addi.", "lu12i.", "ori", "nop")
LOADS: Final = ("li.w", "li.d", "ori", "lu12i.w")
WRITES = ("st.", "b", "syscall", "jr", "jirl", "ret", ".word", "nop")
"""Prefixes of mnemonics whose first operand is not written."""
CLONE, VFORK = 220, (0x40, 0x41)
"""System call of loongarch64; its flags CLONE_VFORK, perhaps with CLONE_VM, above the signal."""


def _known(insns: Sequence[Instruction]) -> bool:
    kept, reads, values = set[str](), False, dict[str, int]()
    for one in insns:
        name, operands = one.mnemonic, one.operands
        target, *given = operands.split(", ")
        if name in ("ret", "jr", "jirl", "b", "bl"):
            break
        if target in ("$sp", "$ra") and not name.startswith(WRITES):
            return False  # another stack, or it continues within itself
        if name in LOADS:
            before = values.get(target, 0) if name == "ori" else 0
            values[target] = before + (int(given[-1], 0) << (12 if name == "lu12i.w" else 0))
        if name == "syscall" and values.get("$a7") == CLONE and values.get("$a0", 0) >> 8 in VFORK:
            return True
        if name == "st.d" and (saved := KEPT.fullmatch(operands)):
            kept.add(saved[1])
        reads |= "$ra" in (operands.split(", ") if name == "st.d" else given)
    return len(kept) >= MIN_SAVED and reads


TWICE: Final = Twice(_known, SETS)
