# SPDX-License-Identifier: MIT
"""Instructions that run elsewhere: what displaces them, and what they become.

A probe at a site writes a trap or a jump there, as kprobes do with ``int3`` or, optimised, with
``jmp rel32``. What stood there must run elsewhere with the same effect:

    site  at       displaced ...            ->   jump (or trap) to the probe, rest as it was
          at+size  on                       <-.
                                              |
    slot  to       displaced, as it must      |
                   read at this place         |
                   jump at+size             --'

Registers, flags and memory are afterwards as if the instructions had run at their site, the 128
bytes below the stack pointer of x86-64 among them. A callee sees the site's return address, so
unwinders find the function itself, and its return skips the slot. The length of the code does not
depend on ``to``, so that room can be reserved first; all distances are relative.

What is left: a few instructions tell a program where they ran. ``syscall`` leaves the slot's
address in rcx, ``fxsave`` that of the last x87 instruction. A moved call leaves a shadow stack
(CET, GCS) without an entry, so processes that have one cannot run it. ``call *`` of memory that
cannot be read faults with the return address already pushed.

After prepare_emulation, copy_optimized_instructions (arch/x86/kernel/kprobes) and
arm_kprobe_decode_insn (arch/arm64/kernel/probes/decode-insn.c).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

from ftpatch.arch import feature

__all__ = ["Immovable", "Moved", "Mover", "PlainMover", "Why", "is_breakpoint", "mover_of"]


class Why(StrEnum):
    """Reason why an instruction cannot be moved: a noun phrase, or a clause about it."""

    SHORT = "the function ends within the bytes to displace"
    UNKNOWN = "an undefined instruction"
    TRAP = "a breakpoint instruction"
    INSIDE = "it refers into the displaced bytes"
    RETURNS = "a call that would return into the displaced bytes"
    ENDS = "control does not fall through to the other displaced bytes"
    FAR = "its target is out of range"
    FORM = "an instruction that cannot be relocated"
    STACK = "a call through the stack pointer or through what the call overwrites"
    LINK = "a call through the link register"
    SIGNED = "a call to a signed address"
    JOINED = "part of a sequence that must not be split"
    SET = "it is not known which instruction set is there"


@dataclass(frozen=True, slots=True)
class Moved:
    """Instructions moved out of line.

    ``size``: bytes displaced. ``code``: what runs instead, with a jump to at + size unless the last
    instruction never continues there.
    """

    size: int
    code: bytes


class Immovable(Exception):
    """An instruction that cannot be moved. ``why`` is a clause, ``text`` the instruction as
    disassembled: ``0x1234: loopne 0x1200``."""

    def __init__(self, why: Why, text: str) -> None:
        self.why = why
        self.text = text
        super().__init__(f"{text}: {why}")

    def __reduce__(self) -> tuple[type[Immovable], tuple[Why, str]]:
        """Support pickling, to be passed on by a worker process."""
        return type(self), (self.why, self.text)


class Mover(Protocol):
    """One per architecture; the constants' units are bytes, addresses are link addresses."""

    jump_size: ClassVar[int]
    """The jump placed at a site."""
    trap: ClassVar[bytes]
    """The trap placed at a site; the size of the smallest instruction. It is an undefined one (udb,
    udf) if there is one so small: int3 and brk raise the signal of debuggers, which do not pass it
    on, and int3 leaves the pc after itself."""
    signal: ClassVar[str]
    """The signal that the trap raises."""
    pad: ClassVar[bytes]
    """A landing pad for indirect calls; a NOP where none is required."""

    def landing(self, code: bytes) -> int:
        """Size of the landing pad (endbr64, bti) that code begins with, which must stay in place; 0
        for none."""
        ...

    def signing(self, code: bytes) -> int:
        """Size of an initial instruction that serves as a landing pad on guarded pages, and works
        elsewhere too (paciasp, pacibsp): a trap may replace it, a jump may not; 0 for none."""
        ...

    def prefixed(self, code: bytes) -> bool:
        """Return whether code begins with a prefix that a branch may skip (lock)."""
        ...

    def joined(self, before: bytes) -> bool:
        """Return whether a probe after ``before``, the function's code so far, would separate
        instructions that belong together: an exclusive load and its store, a prefix and its
        instruction."""
        ...

    def move(self, code: bytes, at: int, to: int, need: int) -> Moved:
        """Move at least ``need`` bytes of the function's ``code`` at ``at``, in whole instructions,
        to address ``to``. Raises Immovable. ``code`` should be the rest of the function."""
        ...

    def jump(self, at: int, to: int) -> bytes:
        """Encode a jump at ``at`` to ``to``. Raises Immovable if that is out of reach."""
        ...

    def reaches(self, at: int, to: int) -> bool:
        """Return whether a jump at ``at`` reaches ``to``."""
        ...


class PlainMover:
    """A Mover's answers where there are no landing pads, prefixes and sequences."""

    def landing(self, code: bytes) -> int:
        """There are none."""
        return 0

    def signing(self, code: bytes) -> int:
        """There are none."""
        return 0

    def prefixed(self, code: bytes) -> bool:
        """There are none."""
        return False

    def joined(self, before: bytes) -> bool:
        """There are none."""
        return False


@runtime_checkable
class TwoSets(Protocol):
    """A mover of two instruction sets: ``at`` has bit 0 in the second one."""

    def of(self, is_second: Callable[[int], bool | None]) -> Mover:
        """Return one for plain addresses, of which this function tells, None where it cannot."""
        ...


def mover_of(arch: str, is_second: Callable[[int], bool | None] | None = None) -> Mover:
    """Return the mover of an architecture's instructions; of two sets the one that ``is_second``
    says. Raises InputError without one."""
    found: Mover = feature(arch, "move")
    return found.of(is_second) if is_second and isinstance(found, TwoSets) else found


def is_breakpoint(arch: str, code: bytes) -> bool:
    """Return whether code begins with an instruction by which debuggers stop (int3, brk)."""
    try:
        mover_of(arch).move(code, 0, 0, 1)
    except Immovable as error:
        return error.why is Why.TRAP
    return False
