# SPDX-License-Identifier: MIT
"""An address space with all functions of a report, for formats that know functions by addresses
alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.symbolize import Functions

__all__ = ["SLOT", "AddressSpace", "slot_start"]

SLOT = 40
"""Bits of the part that each file has; the upper half of it is for functions of which another one
has the address already, as those of several programs do."""
MAX_SLOTS = 126
"""Files that have a part of their own below the stack of an x86-64 process; further ones share the
last."""


def slot_start(slot: int) -> int:
    """The first address of a file's part."""
    return (slot + 1) << SLOT


class AddressSpace:
    """``slots``: which part each library has, the first one being the program's; ``functions``:
    the number of the function at each address, which is that in its file where it can be."""

    def __init__(self) -> None:
        self.slots = {"": 0}
        self.functions: dict[int, int] = {}
        self._at: list[int] = []

    def addresses(self, functions: Functions) -> NDArray[np.uint64]:
        """The address of each function, uint64[f]; those that are new get theirs."""
        for number in range(len(self._at), len(functions)):
            slot = self.slots.setdefault(functions.library[number], min(len(self.slots), MAX_SLOTS))
            start, half = slot_start(slot), 1 << (SLOT - 1)
            at = start + functions.address[number] % half
            if at in self.functions:
                at = start + half + number
            self.functions[at] = number
            self._at.append(at)
        return np.array(self._at, np.uint64)
