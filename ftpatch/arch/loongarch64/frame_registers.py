# SPDX-License-Identifier: MIT
"""Numbers of the registers of loongarch64 (LoongArch ELF psABI, "DWARF Register Numbers"), and
struct rt_sigframe.

| siginfo (128) | uc_flags uc_link uc_stack (40) uc_sigmask (128) - | pc r0 ra ... r31
  ^ sp at the restorer                                  aligned to 16 ^
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.arch.loongarch64.registers import REGISTERS

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = tuple(
    next(name for name, number in REGISTERS.numbers.items() if number == wanted)
    for wanted in range(32)
)
"""Those of the calling convention, by number: the first of each in REGISTERS."""
CONTEXT: Final = 128 + 176
"""Bytes from a signal's frame to its struct sigcontext, which begins with sc_pc and sc_regs
(arch/loongarch/include/uapi/asm/sigcontext.h, ucontext.h)."""
WORD: Final = 8
FLOATS: Final = 32
"""DWARF number of f0."""


def _in_plt(ip: int, sp: int) -> int:
    """An entry of the PLT leaves the stack as it is; link editors write nothing of it."""
    return sp


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=NAMES.index("sp"),
    frame=NAMES.index("fp"),
    back=NAMES.index("ra"),
    link=True,
    address=(1 << 64) - 1,
    restorer=bytes.fromhex("0b2c820300002b00"),  # ori $a7, $zero, 139 (rt_sigreturn); syscall 0
    vdso=True,
    signalled={number: CONTEXT + WORD * (1 + number) for number in range(1, len(NAMES))},
    ip=CONTEXT,
    in_plt=_in_plt,
    vectors={FLOATS + number: name for number, name in enumerate(REGISTERS.vectors)},
)
