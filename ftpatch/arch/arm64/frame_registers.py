# SPDX-License-Identifier: MIT
"""Numbers of the registers of arm64 (AADWARF64, "DWARF register names"), and struct rt_sigframe.

| siginfo (128) | uc_flags uc_link uc_stack (24) uc_sigmask (128) - | fault_address x0 ... x30 sp pc
  ^ sp at the restorer                                  aligned to 16 ^
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = (*(f"x{n}" for n in range(31)), "sp")
REGS: Final = 128 + 176 + 8
"""Bytes from a signal's frame to regs[0] of its struct sigcontext
(arch/arm64/include/uapi/asm/sigcontext.h, ucontext.h)."""
WORD: Final = 8
LINK: Final = 30


def _in_plt(ip: int, sp: int) -> int:
    """An entry of the PLT leaves the stack as it is; link editors write nothing of it."""
    return sp


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=NAMES.index("sp"),
    frame=29,
    back=LINK,
    link=True,
    address=(1 << 48) - 1,  # what a signature (PAC) leaves
    restorer=bytes.fromhex("681180d2010000d4"),  # mov x8, 139 (rt_sigreturn); svc #0
    vdso=True,
    signalled={number: REGS + WORD * number for number in range(len(NAMES))},
    ip=REGS + WORD * len(NAMES),
    in_plt=_in_plt,
    vectors={64 + n: f"v{n}" for n in range(32)},
)
