# SPDX-License-Identifier: MIT
"""Numbers of the registers of x86-64 (psABI, figure 3.36), and struct sigcontext.

| uc_flags uc_link uc_stack (24) | r8 ... r15 | rdi rsi rbp rbx rdx rax rcx rsp rip | ...
  ^ rsp at the restorer            40
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = (
    *("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip"),
)
SAVED: Final = (
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
    *("rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip"),
)
"""struct sigcontext (arch/x86/include/uapi/asm/sigcontext.h)."""
CONTEXT: Final = 40
"""Bytes of struct ucontext before it."""


def _in_plt(ip: int, sp: int) -> int:
    """As link editors write it for an entry of 16 bytes, which pushes at 6:
    breg7 8, breg16 0, lit15, and, lit11, ge, lit3, shl, plus."""
    return sp + 8 + (ip % 16 >= 11) * 8


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=NAMES.index("rsp"),
    frame=NAMES.index("rbp"),
    back=NAMES.index("rip"),
    link=False,
    address=(1 << 64) - 1,
    restorer=bytes.fromhex("48c7c00f0000000f05"),  # mov $15, %rax (rt_sigreturn); syscall
    vdso=False,
    signalled={NAMES.index(name): CONTEXT + 8 * row for row, name in enumerate(SAVED)},
    ip=CONTEXT + 8 * SAVED.index("rip"),
    in_plt=_in_plt,
    vectors={17 + n: f"xmm{n}" for n in range(16)},
    laid=16,  # push %rbp; mov %rsp, %rbp
)
