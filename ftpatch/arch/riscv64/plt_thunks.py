# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of riscv64: a site's call, and then what the entry did.

auipc t0, ftrace_plt_caller; jalr t0, ftrace_plt_caller(t0)
auipc t3, slot; ld t3, slot(t3); auipc t1, behind; addi t1, t1, behind; jr t3
.word ip - the address after the first jalr

An entry's auipc and ld become `auipc t3, thunk; jr thunk(t3)`; what is in front (lpad) stays. At a
PLT entry t0 is free (RISC-V psABI, "Procedure Linkage Table"); lazy binding finds its slot by t1,
which is the address behind the entry's jalr.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, bytes_of, put
from ftpatch.arch.riscv64.encode import RV, pair

__all__ = ["THUNKS"]

WIDTH = 12
"""Bytes of an entry: auipc, ld, jalr."""
SIZE = 32
SITE = 8
"""Bytes of a site: an ip is as far behind its start."""
T1 = 6
LOW = 0xFFF0_0000
"""imm12 of ld, jalr and addi."""
ADDI_T1 = RV.NOP | T1 << 7 | T1 << 15
JR_T3 = RV.JALR | RV.T3 << 15


def _pair(register: int, at: I64, to: I64, low: int) -> NDArray[np.uint32]:
    """``auipc register`` at addresses ``at``, and an instruction ``low`` with the rest of the
    distance, uint32[n, 2]."""
    code = pair(register, at.view(np.uint64), to.view(np.uint64))
    code[:, 1] = code[:, 1] & np.uint32(LOW) | np.uint32(low)
    return code


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    old = np.empty((len(jump), WIDTH // 4), np.uint32)
    old[:, :2] = _pair(RV.T3, jump, slot, RV.LD_T3)
    old[:, 2] = RV.JALR_T1_T3
    return bytes_of(old), np.full(len(jump), WIDTH, np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = old.copy()
    new[:, :8] = bytes_of(_pair(RV.T3, jump, thunk, JR_T3))
    return new


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    code = np.zeros((len(old), SIZE // 4), np.uint32)
    code[:, :2] = pair(RV.T0, thunk.view(np.uint64), np.full(len(thunk), caller, np.uint64))
    code[:, 2:4] = _pair(RV.T3, thunk + 8, slot, RV.LD_T3)
    code[:, 4:6] = _pair(T1, thunk + 16, jump + WIDTH, ADDI_T1)
    code[:, 6] = JR_T3
    out = bytes_of(code)
    put(out, SIZE - 4, jump + SITE - (thunk + 8))
    return out


THUNKS: Final = PltThunks(
    width=WIDTH,
    size=SIZE,
    reach=RV.REACH - RV.ROUND,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("017801"),  # alignments 1 and -8, return address in register 1
    initial=bytes.fromhex("0c0200"),  # DW_CFA_def_cfa sp, 0
)
