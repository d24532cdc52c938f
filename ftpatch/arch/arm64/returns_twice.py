# SPDX-License-Identifier: MIT
"""Functions of arm64 that can return more than once per call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

KEPT = re.compile(r"(x\d+)(?:, (x\d+|xzr))?, \[x0(?:, #[0-9a-fx]+)?\]")
SETS = ("mov", "movz", "cmp", "tst", "nop", "bti", "hint")
SAVED = frozenset(f"x{n}" for n in range(19, 29))
CLONE, VFORK = 220, (0x40, 0x41)
"""System call of arm64; its flags CLONE_VFORK, perhaps with CLONE_VM, above the signal."""


def _known(insns: Sequence[Instruction]) -> bool:
    kept, reads, values = set[str](), False, dict[str, int]()
    for one in insns:
        name, operands = one.mnemonic, one.operands
        if name in ("ret", "b", "br", "bl", "blr") or name.startswith("ret"):
            break
        if operands.startswith(("sp,", "wsp,", "x30,")) and name not in ("stp", "str", "cmp"):
            return False  # another stack, or it continues within itself
        if operands.endswith("]!"):
            return False
        if name in ("mov", "movz") and ", #" in operands:
            target, value = operands.split(", #")[:2]
            values["x" + target[1:]] = int(value.split(",")[0], 0)
        if name == "svc" and values.get("x8") == CLONE and values.get("x0", 0) >> 8 in VFORK:
            return True
        if name in ("stp", "str") and (saved := KEPT.fullmatch(operands)):
            kept |= {saved[1], saved[2] or ""} & SAVED
        sources = operands if name in ("stp", "str") else operands.partition(", ")[2]
        reads |= "x30" in sources
    return len(kept) >= MIN_SAVED and reads


TWICE: Final = Twice(_known, SETS)
