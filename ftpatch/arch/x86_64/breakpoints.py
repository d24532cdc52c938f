# SPDX-License-Identifier: MIT
"""Breakpoints on data of x86_64: they trap after the instruction (SDM vol. 3, section 18.3.1.2)."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.breakpoints import Breakpoints

__all__ = ["BREAKPOINTS"]

PT_REGS: Final = (
    *("r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8"),
    *("ax", "cx", "dx", "si", "di", "orig_ax", "ip", "cs", "flags", "sp", "ss"),
)
"""struct pt_regs (arch/x86/include/uapi/asm/ptrace.h)."""
GENERAL: Final = ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di", *(f"r{n}" for n in range(8, 16)))
"""As instructions number them."""

BREAKPOINTS: Final = Breakpoints(
    perf_event_open=298,  # arch/x86/entry/syscalls/syscall_64.tbl
    bpf=321,
    ip=8 * PT_REGS.index("ip"),
    general=tuple(8 * PT_REGS.index(name) for name in GENERAL),
    stack=GENERAL.index("sp"),
)
