# SPDX-License-Identifier: MIT
"""Signal frames of x86_64, struct rt_sigframe (arch/x86/include/asm/sigframe.h; struct ucontext and
struct sigcontext in arch/x86/include/uapi/asm).

| back | uc_flags uc_link uc_stack (24) | r8 ... rcx | rsp | rip | eflags | cs gs fs ss | err ...
^ 16 n + 8                                                                  16 bits each
         | trapno oldmask cr2 | fpstate | - (64) | mask | siginfo (128) |  ... | *fpstate ...
                                                                          < 80
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.signal_frames import AddressesOf, SignalFrames

__all__ = ["FIND_FRAMES"]

WORD: Final = 8
USER_CS: Final = 0x33
"""__USER_CS (arch/x86/include/asm/segment.h)."""
FIXED: Final = 0x0000_0002
"""Bit 1 of the flags is always set (Intel SDM volume 1, 3.4.3)."""
FLAGS: Final = 1 << 22
"""The flags' bits end below this one."""
BEFORE, SIZE = 22, 55
"""Words of a frame before rip, and all of them, with siginfo."""
FPSTATE, MASK = 7, 16
"""Words from rip to these."""
GAP: Final = 80
"""Bytes between a frame and the state of the vectors, which the kernel puts right above it and
aligns to 64, the frame to 16 (get_sigframe() in arch/x86/kernel/signal.c)."""


def _find_frames(words: NDArray[np.uint64], addresses_of: AddressesOf) -> SignalFrames:
    size = max(len(words) - SIZE + 1, 0)

    def column(at: int, rows: NDArray[np.intp] | slice = slice(None)) -> NDArray[np.uint64]:
        out: NDArray[np.uint64] = words[BEFORE + at : BEFORE + at + size][rows]
        return out

    rows = np.flatnonzero((column(2) & np.uint64(0xFFFF)) == USER_CS)
    flags, frame = column(1, rows), addresses_of(rows)
    above = column(FPSTATE, rows) - frame - np.uint64(SIZE * WORD)  # wraps
    found = (flags & np.uint64(FIXED) != 0) & (flags < FLAGS)
    found &= (frame % np.uint64(16) == WORD) & (above < GAP)
    found &= addresses_of(rows + SIZE - 1) - frame == (SIZE - 1) * WORD  # of one stack
    rows = rows[found]
    return SignalFrames(
        at=addresses_of(rows + BEFORE),
        ip=column(0, rows),
        sp=column(-1, rows),
        mask=column(MASK, rows),
        back=column(-BEFORE, rows),
    )


FIND_FRAMES: Final = _find_frames
