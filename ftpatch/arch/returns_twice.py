# SPDX-License-Identifier: MIT
"""Functions that return more than once for a call, by their code, where no name says it.

    setjmp, getcontext   put all callee-saved registers and the return address into what their first
                         argument points to, and make no frame
    vfork                takes the return address from the stack before the system call (x86-64), or
                         asks for CLONE_VFORK in its own frame (arm64)
    _setjmp, sigsetjmp   set an argument and jump to one of those, or end in front of it

swapcontext() begins as getcontext(), and then leaves for another stack: it returns once. Read off
glibc's and musl's sources (setjmp.S, __sigsetjmp, getcontext.S, vfork.S).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ftpatch.arch import feature
from ftpatch.arch.disassemble import Instruction, disassemble
from ftpatch.arch.instruction_set import instruction_set

__all__ = ["MIN_SAVED", "SPAN", "Twice", "returns_twice", "takes_return"]

SPAN = 512
"""Maximum bytes of a function to examine."""
MIN_SAVED = 4
"""Callee-saved registers that must be stored unchanged: some C libraries mangle one."""
SHORT_SPAN = 16
"""Bytes of one that only returns its return address."""
DEPTH = 3
"""Maximum jumps to follow."""
SHORT = 5
"""Maximum instructions of a function that only sets an argument."""


@dataclass(frozen=True)
class Twice:
    """``known`` recognises such a function by its instructions; ``sets`` are prefixes of the
    mnemonics that only set arguments; ``takes`` those that return their return address, as a
    position-independent program asks for its own place on i386."""

    known: Callable[[Sequence[Instruction]], bool]
    sets: tuple[str, ...]
    takes: Callable[[Sequence[Instruction]], bool] = lambda insns: False


def returns_twice(arch: str, address: int, read: Callable[[int], bytes]) -> bool:
    """Return whether the function at an address does. ``read``: its code by address, at most SPAN
    bytes, empty for anything else. Of two instruction sets bit 0 says which. Raises InputError if
    an architecture's are not supported."""
    rules: Twice = feature(arch, "returns_twice")
    left, seen = [(address, 0)], set[int]()
    while left:
        at, depth = left.pop()
        if at in seen or depth > DEPTH:
            continue
        seen.add(at)
        insns = disassemble(arch, read(at), at)
        if rules.known(insns):
            return True
        second = at & 1 if instruction_set(arch) else 0
        left += [(target | second, depth + 1) for target in _leads(insns, rules.sets)]
    return False


def takes_return(arch: str, address: int, read: Callable[[int], bytes]) -> bool:
    """Return whether the function at an address returns where it was called from: ``read`` as
    there. Raises InputError if an architecture's are not supported."""
    rules: Twice = feature(arch, "returns_twice")
    return rules.takes(disassemble(arch, read(address)[:SHORT_SPAN], address))


def _leads(insns: Sequence[Instruction], sets: tuple[str, ...]) -> Iterator[int]:
    """Target of a function that only sets arguments, perhaps tests one, and jumps, or goes on in
    the function behind it."""
    for one in insns[:SHORT]:
        if one.target is not None and not one.mnemonic.startswith(("call", "bl")):
            yield one.target
            if one.mnemonic in ("jmp", "b", "b.w"):
                return
        elif not one.mnemonic.startswith(sets) or "(" in one.operands or "[" in one.operands:
            return
    if 0 < len(insns) <= SHORT:
        yield insns[-1].address + insns[-1].size
