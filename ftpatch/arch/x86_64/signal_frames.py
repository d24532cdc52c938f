# SPDX-License-Identifier: MIT
"""Signal frames of x86_64, as in struct sigcontext (arch/x86/include/uapi/asm/sigcontext.h).

| ... | rsp | rip | eflags | cs gs fs ss | err | ...        a word each, the segments 16 bits each
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SAVED_AT"]

USER_CS: Final = 0x33
"""__USER_CS (arch/x86/include/asm/segment.h)."""
FIXED: Final = 0x0000_0002
"""Bit 1 of the flags is always set (Intel SDM volume 1, 3.4.3)."""
FLAGS: Final = 1 << 22
"""The flags' bits end below this one."""


def _saved_at(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if len(words) < 3:
        return words[:0]
    flags, segments = words[1:-1], words[2:]
    found = (segments & np.uint64(0xFFFF)) == USER_CS
    found &= (flags & np.uint64(FIXED) != 0) & (flags < FLAGS)
    saved: NDArray[np.uint64] = words[:-2][found]
    return saved


SAVED_AT: Final = _saved_at
