# SPDX-License-Identifier: MIT
"""System calls of loongarch64 that set or block signals:

    ori $a7, $zero, 134; syscall 0         03 82 18 0b ... 00 2b 00 00

The rules are those of stubs/loongarch64/system_calls.c. Numbers: include/uapi/asm-generic/unistd.h,
as on arm64.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ftpatch.arch.system_calls import MAX_DISTANCE, SystemCall

__all__ = ["system_calls"]

NUMBERS = frozenset((134, 135, 137, 133, 72, 73, 22, 292, 426, 441))
"""rt_sigaction, rt_sigprocmask, rt_sigtimedwait, rt_sigsuspend, pselect6, ppoll, epoll_pwait,
io_pgetevents, io_uring_enter, epoll_pwait2: if one of these were missed, a program might lose hits
or die (rt_sigpending only reports)."""
SYSCALL, A7 = 0x002B_0000, 11
LOADS = frozenset((0x0380_0000, 0x0280_0000, 0x02C0_0000))
"""ori, addi.w, addi.d $a7, $zero."""


def system_calls(code: bytes, address: int) -> Iterator[SystemCall]:
    """Find those in ``code`` at ``address``."""
    words = np.frombuffer(code[: len(code) // 4 * 4], "<u4")
    for at in np.flatnonzero(words == SYSCALL).tolist():
        before = words[max(at - MAX_DISTANCE // 4 - 4, 0) : at][::-1].tolist()
        gives = next((w for w in before if w & 31 == A7 or w == SYSCALL), SYSCALL)
        known = gives != SYSCALL and gives & 0xFFC0_03E0 in LOADS
        if known and gives >> 10 & 0xFFF not in NUMBERS:
            continue
        yield SystemCall(address + 4 * at - 4, address + 4 * at + 4, True)
