# SPDX-License-Identifier: MIT
"""Numbers of the registers of i386 (psABI for i386, table 2.14), and the frames of signals.

| number info* ucontext* | siginfo (128) | uc_flags uc_link uc_stack (20) | gs fs es ds edi ... eip
| number |                                                                 the same, no SA_SIGINFO
  ^ esp where the handler has returned to
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.frame_registers import FrameRegisters

__all__ = ["FRAME_REGISTERS"]

NAMES: Final = ("eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "eip")
SAVED: Final = ("edi", "esi", "ebp", "esp", "ebx", "edx", "ecx", "eax")
"""struct sigcontext (arch/x86/include/uapi/asm/sigcontext.h), behind four segments; behind them
are trapno, err, eip, cs, eflags and esp again."""
WORD: Final = 4
CONTEXT: Final = 3 * WORD + 128 + 20 + 4 * WORD


def _in_plt(ip: int, sp: int) -> int:
    """As link editors write it for an entry of 16 bytes, which pushes at 6:
    breg4 4, breg8 0, lit15, and, lit11, ge, lit2, shl, plus."""
    return sp + WORD + (ip % 16 >= 11) * WORD


FRAME_REGISTERS: Final = FrameRegisters(
    names=NAMES,
    stack=NAMES.index("esp"),
    frame=NAMES.index("ebp"),
    back=NAMES.index("eip"),
    link=False,
    address=(1 << 32) - 1,
    restorer=bytes.fromhex("b8ad000000cd80"),  # mov $173, %eax (rt_sigreturn); int $0x80
    vdso=True,
    signalled={NAMES.index(name): CONTEXT + WORD * row for row, name in enumerate(SAVED)},
    ip=CONTEXT + WORD * (len(SAVED) + 2),
    in_plt=_in_plt,
    vectors={11 + n: f"st{n}" for n in range(8)} | {21 + n: f"xmm{n}" for n in range(8)},
    word=WORD,
    laid=2 * WORD,  # push %ebp; mov %esp, %ebp
    shorter=(0, 2 * WORD + 128 + 20),
    again=CONTEXT + WORD * (len(SAVED) + 5),
)
