# SPDX-License-Identifier: MIT
"""Breakpoints on data of x86_64: they trap after the instruction (SDM vol. 3, section 18.3.1.2)."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.breakpoints import Breakpoints

__all__ = ["BREAKPOINTS"]

BREAKPOINTS: Final = Breakpoints(
    perf_event_open=298,  # arch/x86/entry/syscalls/syscall_64.tbl
    bpf=321,
    ip=16 * 8,  # after r15 to orig_ax in struct pt_regs (arch/x86/include/uapi/asm/ptrace.h)
)
