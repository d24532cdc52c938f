# SPDX-License-Identifier: MIT
"""PLT call stubs of ppc64le, which link editors lay among the code:

    [std r2,24(r1)] addis r12,r2,high; ld r12,low(r12); mtctr r12; bctr
    [std r2,24(r1)] ld r12,low(r2);                     mtctr r12; bctr

psABI, ELFv2, 4.2.5.3 "Procedure Linkage Table". The slot is relative to r2, which the functions'
global entries tell: with two values (a GOT of more than 64 KiB) it is not known which is a stub's.
Stubs that do without r2 (POWER10) are not read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries
from ftpatch.arch.ppc64le.encode import PPC

__all__ = ["entries"]

UPPER = 0xFFFF_0000


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots."""
    del size, got  # the instructions themselves mark the start
    none = np.zeros(0, np.int64)
    word = np.frombuffer(code[: len(code) // 4 * 4].tobytes(), "<u4")
    toc = _toc(word, address)
    if toc is None or len(word) < 4:
        return none, none, none
    upper = word & np.uint32(UPPER)
    bctr = np.flatnonzero((word[2:] == PPC.BCTR) & (word[1:-1] == PPC.MTCTR_R12)) + 2
    load = bctr - 2
    first = np.maximum(load - 1, 0)
    far = (upper[load] == PPC.LD_R12_R12) & (upper[first] == PPC.ADDIS_R12_R2) & (load > 0)
    known = (far | (upper[load] == PPC.LD_R12_R2)) & (word[load] & 3 == 0)
    load, far = load[known], far[known]
    jump = load - far
    slot = toc + _signed(word[load]) + np.where(far, _signed(word[jump]) << 16, 0)
    saves = (jump > 0) & (word[np.maximum(jump - 1, 0)] == PPC.STD_R2)
    return address + 4 * (jump - saves), address + 4 * jump, slot


def _toc(word: NDArray[np.uint32], address: int) -> int | None:
    """What global entries make of r2: ``addis r2,r12; addi r2,r2``, or ``lis r2; addi r2,r2``."""
    upper = word & np.uint32(UPPER)
    at = np.flatnonzero(np.isin(upper[:-1], PPC.FIRST[:2]) & (upper[1:] == PPC.ADDI_R2_R2))
    value = (_signed(word[at]) << 16) + _signed(word[at + 1])
    value += np.where(upper[at] == PPC.FIRST[0], address + 4 * at, 0)
    found = np.unique(value)
    return int(found[0]) if len(found) == 1 else None


def _signed(insn: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The lower halves of instructions."""
    return insn.astype(np.uint16).view(np.int16).astype(np.int64)
