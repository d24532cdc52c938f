# SPDX-License-Identifier: MIT
"""Registers of a stopped thread of x86_64, and its interrupted system call.

At the stop rip is behind the syscall instruction, rax holds the result and orig_rax the number.
When the thread is let go, and not before, the kernel decides about -ERESTART* in rax: it delivers a
signal, with -EINTR as the result, or sets rip and rax back (arch_do_signal_or_restart() in
arch/x86/kernel/signal.c). Numbers: arch/x86/entry/syscalls/syscall_64.tbl.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ftpatch.arch.thread_state import EINTR, RESTARTS, Before, ThreadState, signed

__all__ = ["THREAD_STATE"]

CLOSE, RESTART_SYSCALL = 3, 219
ONCE: Final = (CLOSE, RESTART_SYSCALL)
"""Calls that mean it when they return -EINTR: the descriptor is gone, the signal was handled."""
NOHAND, RESTARTBLOCK = -514, -516
NAMES: Final = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx"),
    *("rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base"),
    *("ds", "es", "fs", "gs"),
)
"""struct user_regs_struct (arch/x86/include/asm/user_64.h)."""
SET_BACK: Final = ("rip", "rax", "orig_rax")


def _again(registers: np.void, before: Before, handled: Callable[[], bool]) -> bool:
    """Say -ERESTARTNOHAND in place of -EINTR. The kernel then returns -EINTR where a handler runs,
    even for a signal that is still to come, and makes the call again otherwise. A time-out in its
    arguments begins anew: a shorter one would be left in a register, or in memory, that the program
    may rely on."""
    call = signed(registers["orig_rax"])
    if signed(registers["rax"]) != EINTR or call < 0 or call in ONCE:
        return False
    registers["rax"] = NOHAND % (1 << 64)
    return True


def _unmade(registers: np.void, last: np.void) -> bool:
    """Undo what the kernel did to let the call be made again: a handler that runs now would run
    before the call, which would no longer end for it.

        last         ... syscall | rip    rax -ERESTART*
        registers    ... | rip syscall    rax the number, or that of restart_syscall(2)

    orig_rax is -1 where an interrupt came once more before the instruction."""
    call = signed(last["orig_rax"])
    if call < 0 or signed(last["rax"]) not in RESTARTS:
        return False
    if registers["rip"] + THREAD_STATE.size != last["rip"]:
        return False
    if registers["rax"] not in (call, RESTART_SYSCALL) or signed(registers["orig_rax"]) not in (
        call,
        -1,
    ):
        return False
    if any(registers[name] != last[name] for name in NAMES if name not in SET_BACK):
        return False
    for name in SET_BACK:
        registers[name] = last[name]
    return True


def _resumed(registers: np.void, before: Before, handled: bool) -> np.void:
    out = registers.copy()
    error = signed(out["rax"])
    if signed(out["orig_rax"]) >= 0 and error in RESTARTS:
        if handled and error in (NOHAND, RESTARTBLOCK):
            out["rax"] = EINTR % (1 << 64)
        else:
            out["rax"] = RESTART_SYSCALL if error == RESTARTBLOCK else out["orig_rax"]
            out["rip"] -= THREAD_STATE.size
    _apart(out)
    return out


def _apart(registers: np.void) -> None:
    registers["orig_rax"] = (1 << 64) - 1


THREAD_STATE: Final = ThreadState(
    layout=np.dtype([(name, "<u8") for name in NAMES]),
    ip="rip",
    sp="rsp",
    thread_pointer="fs_base",
    thread_pointer_set=0,
    link="",
    result="rax",
    call="orig_rax",
    size=2,
    audit=0xC000_003E,  # AUDIT_ARCH_X86_64
    shadow_stack=("x86_Thread_features", "shstk"),
    asks_before=False,
    again=_again,
    unmade=_unmade,
    resumed=_resumed,
    apart=_apart,
)
