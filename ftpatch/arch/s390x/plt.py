# SPDX-License-Identifier: MIT
"""A PLT of s390x:

    larl %r1, slot; lg %r1, 0(%r1); br %r1; basr %r1, %r0; lgf %r1, 12(%r1); jg PLT0; .long offset

s390x ELF ABI, "Procedure Linkage Table".
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries
from ftpatch.arch.s390x.encode import Z, branch_target

__all__ = ["entries"]


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots."""
    del size, got  # the instructions themselves mark the start
    head = np.frombuffer(Z.LARL_R1.to_bytes(2, "big"), np.uint8)
    behind = np.frombuffer(Z.LG_R1, np.uint8)
    width = Z.SIZE + len(behind)
    if len(code) < width:
        none = np.zeros(0, np.int64)
        return none, none, none
    rows = np.lib.stride_tricks.sliding_window_view(code, width)[::2]
    found = (rows[:, :2] == head).all(axis=1) & (rows[:, Z.SIZE :] == behind).all(axis=1)
    at = address + 2 * np.flatnonzero(found)
    slots = branch_target(rows[found], at.view(np.uint64)).view(np.int64)
    return at, at, slots
