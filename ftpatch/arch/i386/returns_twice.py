# SPDX-License-Identifier: MIT
"""Functions of i386 that return more than once for a call, and those that take their return address
for a value:

    mov ebx, [esp]; ret        __x86.get_pc_thunk.bx
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.returns_twice import MIN_SAVED, Twice

__all__ = ["TWICE"]

SAVED = re.compile(r"(%ebx|%esi|%edi|%ebp), (?:0x[0-9a-f]+|\d+)?\(%e[acd]x\)")
ARGUMENT = re.compile(r"4\(%esp\), %e[acd]x")
STACK = re.compile(r"\$(-?0x[0-9a-f]+|-?\d+), %esp")
RETURN = re.compile(r"(?:0x0|0)?\(%esp\), %e\w\w")
SETS = ("endbr", "xor", "mov", "test", "cmp", "nop", "lea", "push")
ENDS = ("ret", "jmp", "call", "leave", "hlt", "ud2")


def _known(insns: Sequence[Instruction]) -> bool:
    saved, reads, depth, asked, pointed = set[str](), False, 0, False, False
    for one in insns:
        name, operands = one.mnemonic, one.operands
        if name == "int" or (name.startswith("call") and operands.startswith("*%gs:")):
            asked = True
        elif name.startswith(ENDS):
            break
        elif name.startswith("pop"):
            if depth <= 0 and not asked and not name.startswith("popf"):
                return True  # the return address
            depth -= 4
        elif name.startswith("push"):
            depth += 4
        elif stack := STACK.fullmatch(operands):
            depth += int(stack[1], 0) * (1 if name.startswith("sub") else -1)
        elif operands.endswith("%esp") and not name.startswith(("cmp", "test")):
            return False  # another stack
        elif name.startswith("mov"):
            pointed |= bool(ARGUMENT.fullmatch(operands)) and not depth
            if found := SAVED.fullmatch(operands):
                saved.add(found[1])
            reads |= bool(RETURN.fullmatch(operands)) and not depth
    return len(saved) >= MIN_SAVED and pointed and reads


def _takes_return(insns: Sequence[Instruction]) -> bool:
    body = [one for one in insns if not one.mnemonic.startswith(("endbr", "nop"))][:2]
    return (
        len(body) == 2
        and body[0].mnemonic.startswith("mov")
        and RETURN.fullmatch(body[0].operands) is not None
        and body[1].mnemonic.startswith("ret")
    )


TWICE: Final = Twice(_known, SETS, _takes_return)
