# SPDX-License-Identifier: MIT
"""Numbers of the registers of riscv64 (RISC-V psABI, "DWARF Register Numbers"), and struct
rt_sigframe.

| siginfo (128) | uc_flags uc_link uc_stack (40) uc_sigmask (128) - | pc ra sp ... t6
  ^ sp at the restorer                                  aligned to 16 ^
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.arch.riscv64.registers import REGISTERS

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = tuple(
    next(name for name, number in REGISTERS.numbers.items() if number == wanted)
    for wanted in range(32)
)
"""Those of the calling convention, by number: the first of each in REGISTERS."""
REGS: Final = 128 + 176
"""Bytes from a signal's frame to its struct user_regs_struct, which begins with pc, where x0 would
be (arch/riscv/include/uapi/asm/ucontext.h, ptrace.h)."""
WORD: Final = 8
FLOATS: Final = 32
"""DWARF number of f0."""


def _number(name: str) -> int:
    """The DWARF number of a floating-point register: fa0 is f10, fs2 is f18, ft8 is f28."""
    kind, n = name[:2], int(name[2:])
    first = {"fa": 10, "ft": 0 if n < 8 else 20, "fs": 8 if n < 2 else 16}[kind]
    return FLOATS + first + n


def _in_plt(ip: int, sp: int) -> int:
    """An entry of the PLT leaves the stack as it is; link editors write nothing of it."""
    return sp


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=NAMES.index("sp"),
    frame=NAMES.index("s0"),
    back=NAMES.index("ra"),
    link=True,
    address=(1 << 64) - 1,
    restorer=bytes.fromhex("9308b00873000000"),  # li a7, 139 (rt_sigreturn); ecall
    vdso=True,
    signalled={number: REGS + WORD * number for number in range(1, len(NAMES))},
    ip=REGS,
    in_plt=_in_plt,
    vectors={_number(name): name for name in REGISTERS.vectors},
)
