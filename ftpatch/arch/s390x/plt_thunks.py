# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of s390x: a site's call, and then what the entry did.

brasl %r1, ftrace_plt_caller
larl %r1, slot; lg %r1, 0(%r1); br %r1
.long ip - the address after the brasl

An entry's larl becomes `jg thunk`. What follows its br stays: lazy binding comes there through the
slot.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks
from ftpatch.arch.s390x.encode import Z, branch
from ftpatch.core.byte_order import BIG

__all__ = ["THUNKS"]

WIDTH: Final = Z.SIZE + len(Z.LG_R1)
"""Bytes of an entry: larl, lg, br."""
SIZE: Final = Z.SIZE + WIDTH + 4


def _instruction(opcode: int, at: I64, to: I64) -> U8:
    """An instruction with the distance of two addresses, uint8[n, 6]."""
    return branch(opcode, at.view(np.uint64), to.view(np.uint64))


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    del code  # there is but one form
    old = np.empty((len(jump), WIDTH), np.uint8)
    old[:, : Z.SIZE] = _instruction(Z.LARL_R1, jump, slot)
    old[:, Z.SIZE :] = np.frombuffer(Z.LG_R1, np.uint8)
    return old, np.full(len(jump), WIDTH, np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = old.copy()
    new[:, : Z.SIZE] = _instruction(Z.BRCL_15, jump, thunk)
    return new


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    behind = thunk + Z.SIZE
    code = np.empty((len(old), SIZE), np.uint8)
    code[:, : Z.SIZE] = _instruction(Z.BRASL_R1, thunk, np.full(len(thunk), caller, np.int64))
    code[:, Z.SIZE : -4] = _old(behind, slot, old)[0]
    code[:, -4:] = BIG.rows(jump + Z.SIZE - behind, 4)
    return code


THUNKS: Final = PltThunks(
    width=WIDTH,
    size=SIZE,
    reach=1 << 31,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("01780e"),  # alignments 1 and -8, return address in register 14
    initial=bytes.fromhex("0c0fa001"),  # DW_CFA_def_cfa %r15, 160
)
