# SPDX-License-Identifier: MIT
"""Local entries: where an ABI keeps the base of a file's data in a register (r2 of ELFv2), callers
of the same file enter a function behind the instructions that set it.

    symbol            addis r2,r12,..; addi r2,r2,..      from anywhere, by way of r12
    local entry       the function                        with r2 set

A call into another file goes through a stub that saves the register in its caller's frame. A site
has no frame yet, so it cannot make one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ftpatch.arch import feature, supports
from ftpatch.arch.contract import U8, U64

__all__ = ["LocalEntry", "local_entry"]

LocalEntry = Callable[[U8], U64]
"""Takes st_other of n symbols, and returns the bytes from each to its local entry."""


def local_entry(arch: str, other: U8) -> U64:
    """Bytes from each symbol, by its st_other, to its local entry, uint64[n]: 0 where there is
    but one entry."""
    if not supports(arch, "local_entry"):
        return np.zeros(len(other), np.uint64)
    entry: LocalEntry = feature(arch, "local_entry")
    return entry(other)
