# SPDX-License-Identifier: MIT
"""Functions of x86_64 that return more than once for a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

KEPT = re.compile(r"(%rbx|%rbp|%r1[2-5]), (?:0x[0-9a-f]+)?\(%rdi\)")
STACK = re.compile(r"\$(-?0x[0-9a-f]+|-?\d+), %rsp")
SETS = ("endbr", "xor", "mov", "test", "cmp", "nop", "lea")


def _known(insns: Sequence[Instruction]) -> bool:
    kept, reads, depth, asked = set[str](), False, 0, False
    for one in insns:
        name, operands = one.mnemonic, one.operands
        if name.startswith(("ret", "jmp", "call", "leave", "hlt", "ud2")):
            break
        if name.startswith("pop"):
            if depth <= 0 and not asked and not name.startswith("popf"):
                return True  # the return address
            depth -= 8
        elif name.startswith("push"):
            depth += 8
        elif stack := STACK.fullmatch(operands):
            depth += int(stack[1], 0) * (1 if name.startswith("sub") else -1)
        elif operands.endswith("%rsp") and not name.startswith(("cmp", "test")):
            return False  # another stack
        elif name == "syscall":
            asked = True
        elif name.startswith("mov"):
            if saved := KEPT.fullmatch(operands):
                kept.add(saved[1])
            reads |= operands.startswith("(%rsp), %r") and not depth
    return len(kept) >= MIN_SAVED and reads and not depth


TWICE: Final = Twice(_known, SETS)
