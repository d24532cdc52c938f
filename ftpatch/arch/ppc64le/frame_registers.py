# SPDX-License-Identifier: MIT
"""Numbers of the registers of ppc64le (psABI, ELFv2, 2.4 "DWARF Definition"), and struct
rt_sigframe.

| frame (128) | uc_flags uc_link uc_stack (40) uc_sigmask (128) | ... (64) | r0 ... r31 nip ... link
  ^ r1 at the restorer
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters

__all__ = ["FRAME_REGISTERS"]

FLOATS, LR, CTR = 32, 65, 66
"""DWARF numbers of f0, lr and ctr."""
NAMES: Final = (
    *(f"r{n}" for n in range(32)),
    *(f"f{n}" for n in range(32)),
    *("", "lr", "ctr", ""),
    *(f"cr{n}" for n in range(8)),
    "xer",
)
WORD: Final = 8
REGS: Final = 128 + 40 + 128 + 64
"""Bytes from the stack pointer to gp_regs of a signal's struct sigcontext, as the kernel's struct
pt_regs begins (arch/powerpc/include/uapi/asm: ucontext.h, sigcontext.h, ptrace.h)."""
NIP, LINK = 32, 36
"""Places in that: PT_NIP, PT_LNK."""


def _in_plt(ip: int, sp: int) -> int:
    """An entry of the PLT leaves the stack as it is; link editors write nothing of it."""
    return sp


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=1,
    frame=31,
    back=LR,
    link=True,
    address=(1 << 64) - 1,
    restorer=bytes.fromhex("80002138ac00003802000044"),  # addi r1,r1,128; li r0,172; sc
    vdso=True,
    signalled={number: REGS + WORD * number for number in range(32)} | {LR: REGS + WORD * LINK},
    ip=REGS + WORD * NIP,
    in_plt=_in_plt,
    shorter=(0, -16),  # qemu-user's are 16 bytes longer
    chained=True,
    vectors={FLOATS + n: f"f{n}" for n in range(32)},
)
