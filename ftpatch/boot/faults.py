# SPDX-License-Identifier: MIT
"""The functions by which a kernel reports that something is wrong with it.

All of an oops go through oops_enter() or die(), of a panic through panic() (nmi_panic() in an NMI;
vpanic() since 6.16), of a WARN through __warn().
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.symbols import Symbols

__all__ = ["FAULTS", "WARNINGS", "reporting"]

FAULTS = (
    *("oops_enter", "die", "panic", "vpanic", "nmi_panic"),
    *("handle_stack_overflow", "handle_bad_stack", "panic_bad_stack"),
)
"""Functions at which recording stops."""
WARNINGS = ("__warn",)
"""Functions of a WARN, after which a kernel goes on."""
NEAR = 16
"""Maximum distance of a site from its function's start (bytes)."""


def reporting(
    ip: NDArray[np.uint64], symbols: Symbols, names: tuple[str, ...]
) -> NDArray[np.bool_]:
    """Return whether each site, bool[n], is that of a function with one of these names.

    A kernel need not have all of them.
    """
    found = np.zeros(len(ip), bool)
    for name in names:
        at = symbols.find(name)
        if at is not None:
            found |= (ip >= np.uint64(at)) & (ip < np.uint64(at + NEAR))
    return found
