# SPDX-License-Identifier: MIT
"""Registers of a stopped thread, and the system call that the stop interrupted.

A stop wakes the thread out of its system call. Most calls then ask the kernel to be made again
(-ERESTARTSYS and its like, which a program never sees), and will be once the thread is let go. Some
end with -EINTR instead, as if a signal had been handled: the program would see that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature

__all__ = [
    "EINTR",
    "RESTARTS",
    "WIDE",
    "Before",
    "ThreadState",
    "registers_in",
    "signed",
    "thread_state_of",
]

EINTR: Final = -4
RESTARTS: Final = (-512, -513, -514, -516)
"""-ERESTARTSYS, -ERESTARTNOINTR, -ERESTARTNOHAND and -ERESTART_RESTARTBLOCK
(include/linux/errno.h)."""
WIDE: Final = 1
"""SVE_PT_REGS_SVE, one of its flags (arch/arm64/include/uapi/asm/ptrace.h)."""
Before = tuple[int, ...]
"""Number, six arguments, stack pointer and program counter of the call in which a thread waited
before it was stopped (/proc/TID/syscall); empty if it was not seen in any."""


@dataclass(frozen=True, kw_only=True)
class ThreadState:
    """``layout``: struct user_regs_struct, of which ``ip``, ``sp``, ``result`` and ``call`` name
    the program counter, the stack pointer, and the registers of a system call's result and number.
    ``thread_pointer``: that register, empty where it is none of them: then it is the first word of
    the set ``thread_pointer_set`` (NT_*). ``link``: the register with the return address of the
    function that is entered, empty where that is on the stack. ``size``: bytes of the instruction
    that makes a system call. ``audit``: AUDIT_ARCH_* of such a call.
    ``shadow_stack``: line of /proc/TID/status, and the word in it, that tell of one.

    ``again(registers, before, handled)`` turns the -EINTR of an interrupted call into what lets it
    be made again, and returns whether anything was to change; ``handled()`` tells whether a signal
    with a handler is about to be delivered, when EINTR is what the program has to see.
    ``unmade(registers, last)`` tells whether a thread that was let go with ``last`` has yet to make
    its call again, and puts its registers back to that.
    ``resumed(registers, before, handled)`` are the registers with which a thread that was moved
    elsewhere goes on. ``apart(registers)`` keeps the kernel from making the call again where the
    thread was moved to. ``asks_before``: ``before`` is needed.

    ``vectors``: the set (NT_*) of the vector registers, and its bytes, if an injected call sets
    them; ``wider``: sets that hold parts of them which it cannot set, and which a system call
    loses, while WIDE is set in the flags of their struct user_sve_header; ``guarded``: the set
    whose first word has bit 0 set for a thread with a shadow stack. A number of 0 is no set.
    ``signing``: words of code that sign a return address.
    """

    layout: np.dtype[np.void]
    ip: str
    sp: str
    thread_pointer: str
    thread_pointer_set: int
    link: str
    result: str
    call: str
    size: int
    audit: int
    shadow_stack: tuple[str, str]
    asks_before: bool
    again: Callable[[np.void, Before, Callable[[], bool]], bool]
    unmade: Callable[[np.void, np.void], bool]
    resumed: Callable[[np.void, Before, bool], np.void]
    apart: Callable[[np.void], None]
    vectors: tuple[int, int] = (0, 0)
    wider: tuple[int, ...] = ()
    guarded: int = 0
    signing: tuple[int, ...] = ()


def thread_state_of(arch: str) -> ThreadState:
    """The registers of an architecture. Raises InputError if they are not supported."""
    found: ThreadState = feature(arch, "thread_state")
    return found


def registers_in(layout: np.dtype[np.void], held: bytes) -> np.void:
    """Read registers, to be changed in place."""
    row: NDArray[Any] = np.frombuffer(bytearray(held), layout)
    found: np.void = row[0]
    return found


def signed(value: int) -> int:
    """The value of a 64-bit register as a signed number."""
    value = int(value)
    return value - (1 << 64) if value >> 63 else value
