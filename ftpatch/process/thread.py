# SPDX-License-Identifier: MIT
"""A stopped thread: where it is, and with what it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ftpatch.arch.thread_state import Before, ThreadState, signed
from ftpatch.process.process import Process, read_status

__all__ = ["Thread", "is_signalled"]


@dataclass(kw_only=True)
class Thread:
    """A thread of ``process``, as it stopped. ``registers``: a structured scalar, by the names of
    the kernel's struct; changes to it are made by ``leave``. ``group_stop``: the signal that has
    stopped the whole process, 0 if it was running. ``before``: the system call it waited in."""

    process: Process
    tid: int
    state: ThreadState = field(repr=False)
    registers: np.void = field(repr=False)
    group_stop: int = 0
    before: Before = field(default=(), repr=False)
    leaving: np.void | None = field(default=None, repr=False)
    """Registers to be set when it goes on; None: those it has."""
    blocks: bool = False
    """Block all signals then."""
    waits: bool = False
    """It goes on in the system call that the stop interrupted, with ``leaving``."""

    @property
    def place(self) -> Path:
        """Its folder in /proc."""
        return self.process.place / "task" / str(self.tid)

    @property
    def ip(self) -> int:
        """The address at which it stands. In a system call that is going to be made again, it may
        be behind it: see ``resumed``."""
        return int(self.registers[self.state.ip])

    @property
    def sp(self) -> int:
        """Its stack pointer."""
        return int(self.registers[self.state.sp])

    @property
    def result(self) -> int:
        """The result of its last system call or function, signed."""
        return signed(self.registers[self.state.result])

    @property
    def system_call(self) -> int:
        """The number of the system call from which it comes; negative if from none. On machines
        that keep no record of that it is whatever the register of the number holds."""
        return signed(self.registers[self.state.call])

    @property
    def is_signalled(self) -> bool:
        """Test whether a signal with a handler is about to be delivered, which will run first, even
        where the thread is moved."""
        return is_signalled(self.place)

    @property
    def shadow_stack(self) -> bool:
        """Test whether the processor keeps a second stack of its return addresses."""
        line, word = self.state.shadow_stack
        return bool(line) and word in read_status(self.place).get(line, "").split()

    @property
    def resumed(self) -> np.void:
        """The registers with which it goes on, if it is led elsewhere first: an interrupted system
        call is made again from its instruction. Where a signal is about to be handled this may
        differ from what the kernel would do (SA_RESTART is not known): deliver it first."""
        return self.state.resumed(self.registers, self.before, self.is_signalled)

    def move(self, ip: int) -> None:
        """Go on at another address, with the other registers as they are; an interrupted system
        call is not made again."""
        registers = self.registers.copy()
        registers[self.state.ip] = ip
        self.leave(registers)

    def ask_again(self, registers: np.void) -> None:
        """Go on with these registers in the system call that the stop interrupted: it is made again
        with the arguments that they have."""
        self.leaving, self.waits = registers.copy(), True

    def leave(self, registers: np.void, *, blocks: bool = False) -> None:
        """Go on with these registers, and in no system call; with ``blocks``, all signals are
        blocked from then on."""
        self.leaving, self.blocks = registers.copy(), blocks
        self.state.apart(self.leaving)


def is_signalled(place: Path, number: int = 0) -> bool:
    """Test whether a thread, by its folder in /proc, is about to handle a signal: one that waits,
    or ``number``, which it takes already."""
    words = read_status(place)
    pending, shared, blocked, caught = (
        int(words.get(name, "0"), 16) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigCgt")
    )
    taken = 1 << number >> 1
    return bool(((pending | shared) & ~blocked | taken) & caught)
