"""Functions that return more than once for a call, by their code, where no name says it.

    setjmp, getcontext   put all callee-saved registers and the return address into what their first
                         argument points to, and make no frame
    vfork                takes the return address from the stack before the system call (x86-64), or
                         asks for CLONE_VFORK in its own frame (arm64)
    _setjmp, sigsetjmp   set an argument and jump to one of those

swapcontext() begins as getcontext(), and then leaves for another stack: it returns once. Read off
glibc's and musl's sources (setjmp.S, __sigsetjmp, getcontext.S, vfork.S).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from ftpatch.arch.disassemble import Instruction, disassemble

__all__ = ["SPAN", "TWICE_OF", "returns_twice"]

SPAN = 512
"""Bytes of a function to examine."""
LEAST = 4
"""Callee-saved registers that are put away as they are, at least: some C libraries hide one."""
DEPTH = 3
"""Jumps that lead on, at most."""
SHORT = 5
"""Instructions of what only sets an argument, at most."""

X86_KEPT = re.compile(r"(%rbx|%rbp|%r1[2-5]), (?:0x[0-9a-f]+)?\(%rdi\)")
X86_STACK = re.compile(r"\$(-?0x[0-9a-f]+|-?\d+), %rsp")
X86_SETS = ("endbr", "xor", "mov", "test", "cmp", "nop", "lea")
ARM_KEPT = re.compile(r"(x\d+)(?:, (x\d+|xzr))?, \[x0(?:, #[0-9a-fx]+)?\]")
ARM_SETS = ("mov", "movz", "cmp", "tst", "nop", "bti", "hint")
ARM_SAVED = frozenset(f"x{n}" for n in range(19, 29))
CLONE, VFORK = 220, (0x40, 0x41)
"""System call of arm64; its flags CLONE_VFORK, perhaps with CLONE_VM, above the signal."""


def _x86_64(insns: Sequence[Instruction]) -> bool:
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
        elif stack := X86_STACK.fullmatch(operands):
            depth += int(stack[1], 0) * (1 if name.startswith("sub") else -1)
        elif operands.endswith("%rsp") and not name.startswith(("cmp", "test")):
            return False  # another stack
        elif name == "syscall":
            asked = True
        elif name.startswith("mov"):
            if saved := X86_KEPT.fullmatch(operands):
                kept.add(saved[1])
            reads |= operands.startswith("(%rsp), %r") and not depth
    return len(kept) >= LEAST and reads and not depth


def _arm64(insns: Sequence[Instruction]) -> bool:
    kept, reads, values = set[str](), False, dict[str, int]()
    for one in insns:
        name, operands = one.mnemonic, one.operands
        if name in ("ret", "b", "br", "bl", "blr") or name.startswith("ret"):
            break
        if operands.startswith(("sp,", "wsp,", "x30,")) and name not in ("stp", "str", "cmp"):
            return False  # another stack, or it goes on in itself
        if operands.endswith("]!"):
            return False
        if name in ("mov", "movz") and ", #" in operands:
            target, value = operands.split(", #")[:2]
            values["x" + target[1:]] = int(value.split(",")[0], 0)
        if name == "svc" and values.get("x8") == CLONE and values.get("x0", 0) >> 8 in VFORK:
            return True
        if name in ("stp", "str") and (saved := ARM_KEPT.fullmatch(operands)):
            kept |= {saved[1], saved[2] or ""} & ARM_SAVED
        sources = operands if name in ("stp", "str") else operands.partition(", ")[2]
        reads |= "x30" in sources
    return len(kept) >= LEAST and reads


TWICE_OF: Mapping[str, tuple[Callable[[Sequence[Instruction]], bool], tuple[str, ...]]] = (
    MappingProxyType({"x86_64": (_x86_64, X86_SETS), "arm64": (_arm64, ARM_SETS)})
)
"""Name of an architecture -> what knows such a function by its instructions, and the beginnings of
what only sets arguments."""


def returns_twice(arch: str, address: int, read: Callable[[int], bytes]) -> bool:
    """Return whether the function at an address does. ``read``: its code, at most SPAN bytes and
    empty for anything else, by address."""
    known, sets = TWICE_OF[arch]
    left, seen = [(address, 0)], set[int]()
    while left:
        at, depth = left.pop()
        if at in seen or depth > DEPTH:
            continue
        seen.add(at)
        insns = disassemble(arch, read(at), at)
        if known(insns):
            return True
        left += [(target, depth + 1) for target in _leads(insns, sets)]
    return False


def _leads(insns: Sequence[Instruction], sets: tuple[str, ...]) -> Iterator[int]:
    """Target of a function that only sets arguments, perhaps looks at one, and jumps."""
    for one in insns[:SHORT]:
        if one.target is not None and not one.mnemonic.startswith(("call", "bl")):
            yield one.target
            if one.mnemonic in ("jmp", "b"):
                return
        elif not one.mnemonic.startswith(sets) or "(" in one.operands or "[" in one.operands:
            return
