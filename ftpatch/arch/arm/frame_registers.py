# SPDX-License-Identifier: MIT
"""Numbers of the registers of 32-bit ARM ("DWARF for the Arm Architecture", 4.1), and struct
rt_sigframe.

| siginfo (128) | uc_flags uc_link uc_stack (20) | trap_no error_code oldmask | r0 ... r12 sp lr pc
  ^ sp at the restorer                                                         ^
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = (*(f"r{n}" for n in range(13)), "sp", "lr", "pc")
WORD: Final = 4
REGS: Final = 128 + 20 + 3 * WORD
"""Bytes from a signal's frame to arm_r0 (arch/arm/include/uapi/asm/sigcontext.h, and ucontext.h in
arch/arm/include/asm)."""


def _in_plt(ip: int, sp: int) -> int:
    """An entry of the PLT leaves the stack as it is."""
    return sp


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=NAMES.index("sp"),
    frame=11,
    back=NAMES.index("lr"),
    link=True,
    address=(1 << 32) - 1,
    restorer=bytes.fromhex("ad70a0e3000000ef"),  # mov r7, 173 (rt_sigreturn); svc 0
    vdso=True,
    signalled={number: REGS + WORD * number for number in range(15)},
    ip=REGS + WORD * 15,
    in_plt=_in_plt,
    vectors={256 + n: f"d{n}" for n in range(16)} | {64 + n: f"s{n}" for n in range(32)},
    word=WORD,
    whole={(f"s{2 * n}", f"s{2 * n + 1}"): f"d{n}" for n in range(16)},
)
