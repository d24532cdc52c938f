# SPDX-License-Identifier: MIT
"""Signal frames of arm64, struct rt_sigframe (arch/arm64/kernel/signal.c; struct ucontext and
struct sigcontext in arch/arm64/include/uapi/asm).

| siginfo (128) | uc_flags uc_link uc_stack (24) | mask (128) - | fault_address regs[31] | sp | pc
    | pstate | - | fpsimd_context: magic, size | ...                               a word each

The kernel saves the vectors first, and takes no frame without them (setup_sigframe_layout(),
parse_user_sigframe()). A handler returns by its link register.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.signal_frames import AddressesOf, SignalFrames

__all__ = ["FIND_FRAMES"]

WORD: Final = 8
FPSIMD: Final = 528 << 32 | 0x4650_8001
"""struct _aarch64_ctx of an fpsimd_context: FPSIMD_MAGIC, its size."""
PC, MASK = 71, 21
"""Words of a frame before these."""
BEHIND: Final = 3
"""Words from pc to the fpsimd_context."""


def _find_frames(words: NDArray[np.uint64], addresses_of: AddressesOf) -> SignalFrames:
    rows = np.flatnonzero(words[PC + BEHIND :] == FPSIMD)
    rows = rows[addresses_of(rows + PC) - addresses_of(rows) == PC * WORD]  # of one stack
    return SignalFrames(
        at=addresses_of(rows + PC),
        ip=words[rows + PC],
        sp=words[rows + PC - 1],
        mask=words[rows + MASK],
        back=np.zeros(len(rows), np.uint64),
    )


FIND_FRAMES: Final = _find_frames
