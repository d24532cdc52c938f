# SPDX-License-Identifier: MIT
"""Functions of s390x that can return more than once per call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

KEPT: Final = re.compile(r"%r(\d+), %r(\d+), (?:0x[0-9a-f]+|\d+)?\((%r\d+)\)")
SETS: Final = ("lhi", "lghi", "slgr", "xgr", "lgr", "la")
SAVED: Final = frozenset(range(6, 14))
VFORK: Final = 190
"""The system call: arch/s390/kernel/syscalls/syscall.tbl."""
ENDS: Final = ("br", "j", "jg", "brasl", "bras", "basr", "b")


def _known(insns: Sequence[Instruction]) -> bool:
    kept, buffers = set[int](), {"%r2"}
    for one in insns:
        name, operands = one.mnemonic, one.operands
        if name == "svc" and int(operands, 0) == VFORK:
            return True
        if name.split()[0] in ENDS:
            break
        target, *given = operands.split(", ")
        if name in ("lay", "la", "aghi", "agfi", "lgr", "lg") and target == "%r15":
            return False  # a frame, or another stack
        if name == "stmg" and (saved := KEPT.fullmatch(operands)) and saved[3] in buffers:
            kept |= set(range(int(saved[1]), int(saved[2]) + 1))
        elif name == "lmg":
            return False
        elif name == "lgr" and given[0] in buffers:
            buffers.add(target)
        elif target in buffers and not name.startswith(("st", "xg")):
            buffers.discard(target)
    return len(kept & SAVED) >= MIN_SAVED


TWICE: Final = Twice(_known, SETS)
