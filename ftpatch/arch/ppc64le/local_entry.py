# SPDX-License-Identifier: MIT
"""Local entries of ELFv2: bits 5 to 7 of st_other (psABI, ELFv2, 3.4.1 "Symbol Values").

0, 1    the only entry; with 1, r2 is no one's
2 to 6  a local entry 1, 2, 4, 8 or 16 instructions behind the global one
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8, U64

__all__ = ["local_entry"]

SHIFT = 5  # STO_PPC64_LOCAL_BIT
FIRST, LAST = 2, 6


def local_entry(other: U8) -> U64:
    """Bytes to the local entry, uint64[n]; 0 for none, and for the reserved 7."""
    power = other >> np.uint8(SHIFT)
    inside = (power >= FIRST) & (power <= LAST)
    return np.where(inside, np.uint64(1) << power.astype(np.uint64), np.uint64(0))
