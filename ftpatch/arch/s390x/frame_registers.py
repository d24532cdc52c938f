# SPDX-License-Identifier: MIT
"""Numbers of the registers of s390x (s390x ELF ABI, "DWARF Register Number Mapping"), and struct
rt_sigframe and sigframe of arch/s390/kernel/signal.c.

| room (160) | svc (2) - | siginfo (128) | uc_flags uc_link uc_stack (40) | psw r0 ... r15
| room (160) | mask, place of the psw (16) | psw r0 ... r15                      no SA_SIGINFO
  ^ r15 where the handler has returned to
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = tuple(f"r{n}" for n in range(16))
ROOM: Final = 160
"""Bytes of a frame that are its callees': from a function's stack pointer to its CFA."""
FLOATS: Final = (0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
"""Those with the DWARF numbers from 16 on."""
PSW: Final = ROOM + 8 + 128 + 40
"""Bytes from a signal's frame to its struct _s390_regs_common (arch/s390/include/uapi/asm)."""
WORD: Final = 8


def _in_plt(ip: int, sp: int) -> int:
    """An entry of the PLT leaves the stack as it is; link editors write nothing of it."""
    return sp + ROOM


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=15,
    frame=11,
    back=14,
    link=True,
    address=(1 << 64) - 1,
    restorer=bytes.fromhex("0aad"),  # svc 173: rt_sigreturn
    vdso=True,
    signalled={number: PSW + WORD * (2 + number) for number in range(16)},
    ip=PSW + WORD,
    in_plt=_in_plt,
    shorter=(0, PSW - ROOM - 16),
    room=ROOM,
    vectors={16 + place: f"f{n}" for place, n in enumerate(FLOATS)},
)
