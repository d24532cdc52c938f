# SPDX-License-Identifier: MIT
"""Arguments that a prologue stores, where debug information tells the places of parameters
behind that only.

Without optimisation compilers store parameters into the frame, and state these places alone. No
convention says where Rust passes them; but the instructions up to there do:

    sub $0x78,%rsp            the frame's base is 0x78 below the stack pointer at the entry
    mov %rdi,0x38(%rsp)       what is told to be at fbreg 0x38 is in %rdi at the entry
    movsd %xmm0,0x60(%rsp)    a double
    mov 0x80(%rsp),%al        a word of the stack
    and $0x1,%al              a bool, as its caller passes it already
    mov %al,0x6f(%rsp)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ftpatch.arch.registers import Registers
from ftpatch.arch.returns_twice import takes_return
from ftpatch.debuginfo.value_places import Word
from ftpatch.names.functions import Functions

__all__ = ["Spills", "read_spills", "reads_first"]

MAX_PROLOGUE = 1 << 10
"""Bytes of code looked at."""
MOVE = re.compile(r"mov(abs)?[bwlq]?|movs[sd]")
"""As GNU writes them, but for those that extend."""
VECTOR = 8
"""Bytes of a vector register that are known."""
SINGLE, SINGLE_SIZE = "movss", 4
"""Moves a float; of a register it leaves the rest as it was."""
ENDS = ("ret", "jmp", "call", "int", "ud2")
CLEARING = ("xor", "sub")
"""Of a register and itself."""
MEMORY, REGISTER, IMMEDIATE = 3, 1, 2
"""Kinds of operands: CS_OP_*."""
READ, WRITE = 1, 2
"""Accesses of operands: CS_AC_*."""


@dataclass(frozen=True, kw_only=True)
class Spills:
    """The frame behind a prologue, from the stack pointer at the entry on (bytes): ``bases``:
    where a register points to that a frame counts from; ``held``: the size and the word of what is
    stored at an offset, as it is at the entry; ``known``: the same of what registers have."""

    bases: Mapping[str, int]
    held: Mapping[int, tuple[int, Word]]
    known: Mapping[str, tuple[int, Word]]


@dataclass
class _Frame:
    """The state between two instructions; ``known``: what registers have of what was passed."""

    registers: Registers
    stack: str
    bases: dict[str, int]
    known: dict[str, tuple[int, Word]]
    thunk: Callable[[int], Any]
    held: dict[int, tuple[int, Word]] = field(default_factory=dict)

    def place(self, insn: Any, operand: Any) -> int | None:  # noqa: ANN401 - of Capstone
        """Where an operand in memory is, if that is in the frame or above it."""
        memory = operand.mem
        base = self.name(insn.reg_name(memory.base)) if memory.base else None
        if base not in self.bases or memory.index:
            return None
        return self.bases[base] + int(memory.disp)

    def name(self, part: str | None) -> str | None:
        """The whole register that one is the low part of."""
        if not part:
            return None
        numbers, vector = self.registers.numbers, re.sub("^[yz]", "x", part)
        if vector in self.registers.vectors:
            return vector
        for one in (part, part[1:], part[:-1], f"{part[0]}x" if part.endswith("l") else ""):
            if one in numbers:
                same = (name for name, number in numbers.items() if number == numbers[one])
                return max(same, key=len)
        return None

    def store(self, at: int, size: int, what: tuple[int, Word] | None) -> None:
        """Note what is stored, over what was there."""
        for old in [old for old in self.held if old < at + size and at < old + self.held[old][0]]:
            del self.held[old]
        if what is not None:
            self.held[at] = (min(size, what[0]), what[1])

    def read(self, at: int, size: int) -> tuple[int, Word] | None:
        """Return the value at a place: as it was stored, or as the caller passed it."""
        if at >= self.registers.word * self.registers.behind:
            return size, Word(start=self.stack, reads=(at,))
        found = self.held.get(at)
        return (min(size, found[0]), found[1]) if found else None


def read_spills(functions: Functions, registers: Registers, start: int, end: int) -> Spills | None:
    """Read the stores between a function's first instruction and the end of its prologue (link
    addresses); None if that cannot be told, as on architectures whose stack has no return
    addresses."""
    if not registers.pushed or not 0 < end - start <= MAX_PROLOGUE:
        return None
    from ftpatch.arch.disassemble import engine

    offset = int(functions.image.elf.offset_of(np.array([start], np.uint64), executable=True)[0])
    if offset < 0:
        return None
    code = functions.image.data[offset : offset + end - start].tobytes()
    frame = _entered(functions, registers)
    whole = _whole(registers)
    frame.known |= {name: (registers.word, Word(start=name)) for name in whole.values()}
    frame.known |= {name: (VECTOR, Word(start=name)) for name in registers.vectors}
    del frame.known[frame.stack]
    at = start
    for insn in engine(functions.arch).disasm(code, start):
        if not _pass(frame, insn):
            return None
        at += insn.size
    if at != end:  # what is not an instruction, or goes on behind the prologue
        return None
    return Spills(bases=frame.bases, held=frame.held, known=frame.known)


def reads_first(
    functions: Functions, registers: Registers, start: int, names: Collection[str]
) -> bool:
    """Test whether the function at a link address reads registers before it writes them, and not
    only to make room on the stack, as ``push`` does."""
    import capstone

    from ftpatch.arch.disassemble import engine

    frame, left = _entered(functions, registers), set(names)
    for found in engine(functions.arch).disasm(functions.code_at(start), start):
        is_call = found.group(capstone.CS_GRP_CALL) and found.operands[0].type == IMMEDIATE
        insn = frame.thunk(found.operands[0].imm) if is_call else found
        if insn is None or insn.mnemonic.startswith(ENDS):
            return False
        some = ({frame.name(insn.reg_name(one)) for one in part} for part in insn.regs_access())
        read, written = some
        clears = insn.mnemonic.startswith(CLEARING) and len(read) == 1
        left -= set() if insn.mnemonic.startswith("push") or clears else read
        if left & written:
            return False
        if not left:
            return True
    return False


def _entered(functions: Functions, registers: Registers) -> _Frame:
    """The frame at a function's entry."""
    from ftpatch.arch.disassemble import engine

    def thunk(target: int) -> Any:  # noqa: ANN401 - of Capstone
        """The one instruction of a function that only gives the address it returns to."""
        if not takes_return(functions.arch, target, functions.code_at):
            return None
        body = engine(functions.arch).disasm(functions.code_at(target), target)
        return next(one for one in body if one.mnemonic.startswith("mov"))

    stack = _whole(registers)[registers.stack]
    return _Frame(registers=registers, stack=stack, bases={stack: 0}, known={}, thunk=thunk)


def _whole(registers: Registers) -> dict[int, str]:
    """The longest names of registers, which are those of the whole ones, by number."""
    return {number: name for name, number in sorted(registers.numbers.items(), key=_length)}


def _length(named: tuple[str, int]) -> int:
    return len(named[0])


def _pass(frame: _Frame, insn: Any) -> bool:  # noqa: ANN401
    """Follow one instruction; False for one that may do anything."""
    operands, word = list(insn.operands), insn.mnemonic
    sources = [one for one in operands if not one.access & WRITE]
    targets = [one for one in operands if one.access & WRITE]
    source, target = (sources or [None])[0], (targets or [None])[0]
    if word.startswith("push") and source is not None and source.type == REGISTER:
        frame.bases[frame.stack] -= frame.registers.word
        what = frame.known.get(frame.name(insn.reg_name(source.reg)) or "")
        frame.store(frame.bases[frame.stack], frame.registers.word, what)
        return True
    to = target.reg if target is not None and target.type == REGISTER else 0
    if word.startswith("sub") and source is not None and source.type == IMMEDIATE and to:
        name = frame.name(insn.reg_name(to))
        if name == frame.stack:
            frame.bases[name] -= source.imm
            return True
    if MOVE.fullmatch(word) and source is not None and target is not None:
        return _moved(frame, insn, source, target)
    if word.startswith("and") and source is not None and source.type == IMMEDIATE and to:
        name = frame.name(insn.reg_name(to)) or ""
        if source.imm == 1 and targets[0].size == 1 and name in frame.known:  # a bool
            frame.known[name] = (1, frame.known[name][1])
            return True
    return _lost(frame, insn, targets)


def _moved(frame: _Frame, insn: Any, source: Any, target: Any) -> bool:  # noqa: ANN401
    """Follow what copies a value."""
    what: tuple[int, Word] | None = None
    if source.type == REGISTER:
        name = frame.name(insn.reg_name(source.reg)) or ""
        whole = source.size == frame.registers.word
        if target.type == REGISTER and whole and name in frame.bases:
            to = frame.name(insn.reg_name(target.reg))
            if to is None or to == frame.stack:
                return False
            frame.bases[to] = frame.bases[name]
            frame.known.pop(to, None)
            return True
        if name in frame.known and insn.reg_name(source.reg)[-1] != "h":
            size, word = frame.known[name]
            what = (min(size, source.size), word)
    elif source.type == MEMORY and (at := frame.place(insn, source)) is not None:
        what = frame.read(at, source.size)
    if what is not None and insn.mnemonic == SINGLE:
        what = (min(what[0], SINGLE_SIZE), what[1])
    if target.type == MEMORY:
        place = frame.place(insn, target)
        if place is None:
            return False
        frame.store(place, target.size, what)
        return True
    name = frame.name(insn.reg_name(target.reg)) or ""
    if name == frame.stack:
        return False
    frame.bases.pop(name, None)
    frame.known.pop(name, None)
    if what is not None and insn.reg_name(target.reg)[-1] != "h":
        frame.known[name] = what
    return True


def _lost(frame: _Frame, insn: Any, targets: list[Any]) -> bool:  # noqa: ANN401
    """Forget what an instruction changes."""
    import capstone

    if insn.group(capstone.CS_GRP_CALL) and insn.operands[0].type == IMMEDIATE:
        thunk = frame.thunk(insn.operands[0].imm)
        return thunk is not None and _lost(frame, thunk, [])
    ends = (capstone.CS_GRP_CALL, capstone.CS_GRP_JUMP, capstone.CS_GRP_RET, capstone.CS_GRP_INT)
    if any(insn.group(one) for one in ends):
        return False
    for one in targets:
        if one.type == MEMORY:
            at = frame.place(insn, one)
            if at is None:
                return False
            frame.store(at, one.size, None)
    for register in insn.regs_access()[1]:
        name = frame.name(insn.reg_name(register)) or ""
        if name == frame.stack:
            return False
        frame.bases.pop(name, None)
        frame.known.pop(name, None)
    return True
