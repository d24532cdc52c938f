# SPDX-License-Identifier: MIT
"""Registers of a stopped thread of arm64, and its interrupted system call.

x0 holds the first argument and then the result, x8 the number. Before the stop the kernel has
already set pc and x0 back for -ERESTART*, and takes that back itself if a handler is to run; it
knows no more of a call that ended with -EINTR (do_signal() in arch/arm64/kernel/signal.c). Its
first argument has to be known from before. Numbers: include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ftpatch.arch.thread_state import EINTR, Before, ThreadState, signed

__all__ = ["THREAD_STATE"]

CLOSE, FUTEX, NANOSLEEP, CLOCK_NANOSLEEP, RESTART_SYSCALL = 57, 98, 101, 115, 128
ONCE: Final = (CLOSE, RESTART_SYSCALL)
"""Calls that mean it when they return -EINTR: the descriptor is gone, the signal was handled."""
ABSOLUTE = 1
"""TIMER_ABSTIME."""
WAITS = (0, 9)
"""FUTEX_WAIT, FUTEX_WAIT_BITSET."""
COMMAND = 0x7F
"""FUTEX_CMD_MASK, in 7 bits."""


def _was_in(registers: np.void, before: Before, ip: int) -> bool:
    """Whether the thread is still in the call in which it was seen. ``ip``: behind that call."""
    if not before or before[0] < 0 or before[8] != ip or before[7] != registers["sp"]:
        return False
    return all(registers[f"x{n}"] == before[1 + n] for n in range(1, 6))


def _again(registers: np.void, before: Before, handled: Callable[[], bool]) -> bool:
    """Set pc and x0 back. A time-out begins anew: a shorter one would be left in a register, or in
    memory, that the program may rely on."""
    if signed(registers["x0"]) != EINTR or not _was_in(registers, before, int(registers["pc"])):
        return False
    if before[0] in ONCE or handled():
        return False
    registers["x0"] = before[1]
    registers["pc"] -= THREAD_STATE.size
    return True


def _unmade(registers: np.void, last: np.void) -> bool:
    """Never: at the stop pc and x0 are back already, and do not tell with which of -ERESTART*."""
    return False


def _resumed(registers: np.void, before: Before, handled: bool) -> np.void:
    """With RESTART_SYSCALL where the kernel keeps the rest of a time-out (-ERESTART_RESTARTBLOCK),
    and would set this number itself only if pc stayed."""
    out = registers.copy()
    if _was_in(out, before, int(out["pc"]) + THREAD_STATE.size) and out["x0"] == before[1]:
        number, command, limit = before[0], before[2], before[4]
        keeps = (
            number == NANOSLEEP
            or (number == CLOCK_NANOSLEEP and not command & ABSOLUTE)
            or (number == FUTEX and command & COMMAND in WAITS and limit)
        )
        if keeps:
            out["x8"] = RESTART_SYSCALL
    return out


def _apart(registers: np.void) -> None:
    """Nothing: another pc is enough."""


THREAD_STATE: Final = ThreadState(
    # struct user_pt_regs (arch/arm64/include/uapi/asm/ptrace.h).
    layout=np.dtype(
        [(name, "<u8") for name in (*(f"x{n}" for n in range(31)), "sp", "pc", "pstate")]
    ),
    ip="pc",
    sp="sp",
    thread_pointer="",
    thread_pointer_set=0x401,  # NT_ARM_TLS
    link="x30",
    result="x0",
    call="x8",
    size=4,
    audit=0xC000_00B7,  # AUDIT_ARCH_AARCH64
    shadow_stack=("", ""),
    asks_before=True,
    again=_again,
    unmade=_unmade,
    resumed=_resumed,
    apart=_apart,
    vectors=(2, 528),  # NT_PRFPREG, struct user_fpsimd_state
    wider=(0x405, 0x40B),  # NT_ARM_SVE, NT_ARM_SSVE
    signing=(0xD503_233F, 0xD503_237F),  # paciasp; pacibsp
    guarded=0x410,  # NT_ARM_GCS, features_enabled: PR_SHADOW_STACK_ENABLE
)
