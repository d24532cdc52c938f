# SPDX-License-Identifier: MIT
"""Signals that are blocked when a handler returns, in signal frames of x86_64: struct ucontext
(arch/x86/include/uapi/asm/ucontext.h, sigcontext.h).

| ... | rsp | rip | eflags | segments | err | trapno | oldmask | cr2 | fpstate | 8 words | mask |
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.x86_64.signal_frames import FIXED, FLAGS, USER_CS

__all__ = ["SAVED_MASKS"]

BEHIND: Final = 16
"""Words from rip to the mask."""


def _saved_masks(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if len(words) <= BEHIND:
        return words[:0]
    size = len(words) - BEHIND
    flags, segments = words[1 : size + 1], words[2 : size + 2]
    found = (segments & np.uint64(0xFFFF)) == USER_CS
    found &= (flags & np.uint64(FIXED) != 0) & (flags < FLAGS)
    saved: NDArray[np.uint64] = words[BEHIND:][found]
    return saved


SAVED_MASKS: Final = _saved_masks
