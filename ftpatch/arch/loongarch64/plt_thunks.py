# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of loongarch64: a site's call, and then what the entry did.

move $t0, $ra; pcaddu12i $t1, ftrace_plt_caller; jirl $ra, $t1, ftrace_plt_caller
pcaddu12i $t3, slot; ld.d $t3, $t3, slot; pcaddu12i $t1, behind; addi.d $t1, $t1, behind; jr $t3
.word ip - the address after the first jirl

An entry's pcaddu12i and ld.d become `pcaddu12i $t3, thunk; jirl $zero, $t3, thunk`. At a PLT entry
$t0 to $t3 are free: its head, which binds lazily, changes them. That finds its slot by $t1, which
is the address behind the entry's jirl.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.loongarch64.encode import LA
from ftpatch.arch.plt_thunks import I64, PltThunks, bytes_of, put

__all__ = ["THUNKS"]

WIDTH: Final = 12
"""Bytes of an entry: pcaddu12i, ld.d, jirl."""
SIZE: Final = 36
CALLED: Final = 12
"""Bytes of a thunk's call."""
SITE: Final = 8
"""Bytes of a site: an ip is as far behind its start."""
T1, T3 = 13, 15
ADDI_T1, JIRL_RA_T1 = 0x02C0_01AD, 0x4C00_01A1  # addi.d $t1, $t1, 0; jirl $ra, $t1, 0
JIRL_ZERO_T3 = 0x4C00_01E0  # jr $t3: jirl $zero, $t3, 0
JIRL: Final = 0x4C00_0000
ROUND: Final = 0x800


def _pair(register: int, at: I64, to: I64, low: int) -> NDArray[np.uint32]:
    """``pcaddu12i register`` at addresses ``at``, and an instruction ``low`` with the rest of the
    distance, si12 or offs16, uint32[n, 2]."""
    distance = to - at
    high = distance + ROUND >> 12
    rest = distance - (high << 12)
    field = rest >> 2 & 0xFFFF if low & LA.OPCODE == JIRL else rest & 0xFFF
    code = np.empty((len(at), 2), np.uint32)
    code[:, 0] = LA.PCADDU12I | register | (high & 0xF_FFFF) << 5
    code[:, 1] = low | field << 10
    return code


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    old = np.empty((len(jump), WIDTH // 4), np.uint32)
    old[:, :2] = _pair(T3, jump, slot, LA.LD_D_T3_T3)
    old[:, 2] = LA.JIRL_T1_T3
    return bytes_of(old), np.full(len(jump), WIDTH, np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = old.copy()
    new[:, :8] = bytes_of(_pair(T3, jump, thunk, JIRL_ZERO_T3))
    return new


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    code = np.zeros((len(old), SIZE // 4), np.uint32)
    code[:, 0] = LA.MOVE_T0_RA
    code[:, 1:3] = _pair(T1, thunk + 4, np.full(len(thunk), caller, np.int64), JIRL_RA_T1)
    code[:, 3:5] = _pair(T3, thunk + 12, slot, LA.LD_D_T3_T3)
    code[:, 5:7] = _pair(T1, thunk + 20, jump + WIDTH, ADDI_T1)
    code[:, 7] = JIRL_ZERO_T3
    out = bytes_of(code)
    put(out, SIZE - 4, jump + SITE - (thunk + CALLED))
    return out


THUNKS: Final = PltThunks(
    width=WIDTH,
    size=SIZE,
    reach=LA.NEAR - ROUND,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("017801"),  # alignments 1 and -8, return address in register 1
    initial=bytes.fromhex("0c0300"),  # DW_CFA_def_cfa $sp, 0
)
