# SPDX-License-Identifier: MIT
"""Entries of a procedure linkage table, by what they jump through.

Link editors differ in the rest of an entry, and in the size of the table's head.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import feature
from ftpatch.arch.contract import U8

__all__ = ["Entries", "plt_entries"]

Entries = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Start of each entry, its jump (with what computes the target), and the slot that it jumps
through, addresses, int64[n]."""


def plt_entries(arch: str, code: U8, address: int, size: int, got: int) -> Entries:
    """Parse the entries in a section's code at an address; ``size``: sh_entsize; ``got``: value of
    DT_PLTGOT, 0 for none. Raises InputError if an architecture's are not supported."""
    read: Callable[[U8, int, int, int], Entries] = feature(arch, "plt")
    return read(code, address, size, got)
