# SPDX-License-Identifier: MIT
"""The thunk of a PLT call stub of ppc64le: a site's call, and then what the stub did.

mflr r0; bl ftrace_plt_caller
addis r12,r2,high; ld r12,low(r12); mtctr r12; bctr, or ld r12,low(r2); mtctr r12; bctr; nop
.long ip - the address after the bl

The first of these instructions of a stub becomes `b thunk`; the std in front of it stays. r0, r12
and ctr are free there (psABI, ELFv2, 2.2.1.1); lazy binding finds its slot by r12, which is the
slot's value. What is relative to r2 is the same at another place.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, bytes_of
from ftpatch.arch.ppc64le.encode import PPC, branch, words

__all__ = ["THUNKS"]

WIDTH: Final = 16
"""Bytes of a stub from its addis on; without, it is an instruction less."""
CALLED: Final = 8
"""Bytes of a thunk's call."""
SIZE: Final = CALLED + WIDTH + 4
SITE: Final = 4
"""An ip is as far behind its site's start."""


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    """The stub's own distances tell where r2 is."""
    del slot
    found = words(code)
    far = found[:, 0] & np.uint32(~PPC.IMM & 0xFFFF_FFFF) == PPC.ADDIS_R12_R2
    old = np.empty((len(jump), WIDTH // 4), np.uint32)
    imm = found & np.uint32(PPC.IMM)
    old[:, 0] = np.where(far, PPC.ADDIS_R12_R2, PPC.LD_R12_R2) | imm[:, 0]
    old[:, 1] = np.where(far, PPC.LD_R12_R12 | imm[:, 1], PPC.MTCTR_R12)
    old[:, 2] = np.where(far, PPC.MTCTR_R12, PPC.BCTR)
    old[:, 3] = np.where(far, PPC.BCTR, PPC.NOP)
    return bytes_of(old), np.where(far, WIDTH, WIDTH - 4).astype(np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = words(old).copy()
    new[:, 0] = branch(PPC.B, jump.view(np.uint64), thunk.view(np.uint64))
    return bytes_of(new)


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    del slot
    code = np.empty((len(old), SIZE // 4), np.uint32)
    code[:, 0] = PPC.MFLR_R0
    at = (thunk + 4).view(np.uint64)
    code[:, 1] = branch(PPC.BL, at, np.full(len(at), caller, np.uint64))
    code[:, 2:6] = words(old)
    code[:, 6] = (jump + SITE - (thunk + CALLED)).astype(np.uint32)
    return bytes_of(code)


THUNKS: Final = PltThunks(
    width=WIDTH,
    size=SIZE,
    reach=PPC.REACH,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("047841"),  # alignments 4 and -8, return address in register 65
    initial=bytes.fromhex("0c0100"),  # DW_CFA_def_cfa r1, 0
)
