# SPDX-License-Identifier: MIT
"""System calls of arm64 that set or block signals:

    mov x8, 134; svc 0         d28010c8 ... d4000001

Numbers: include/uapi/asm-generic/unistd.h.
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
SVC = 0xD400_0001


def system_calls(code: bytes, address: int) -> Iterator[SystemCall]:
    """Find those in ``code`` at ``address``."""
    words = np.frombuffer(code[: len(code) // 4 * 4], "<u4")
    for at in np.flatnonzero(words == SVC).tolist():
        before = words[max(at - MAX_DISTANCE // 4 - 4, 0) : at][::-1].tolist()
        gives = (i for i, w in enumerate(before) if (w & 0x7FE0001F) == 0x52800008 or w == SVC)
        first = next(gives, None)
        known = first is not None and before[first] != SVC
        if known and first is not None and before[first] >> 5 & 0xFFFF not in NUMBERS:
            continue
        yield SystemCall(address + 4 * at - 4, address + 4 * at + 4, True)
