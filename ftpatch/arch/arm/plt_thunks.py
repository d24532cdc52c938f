# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of 32-bit ARM, in A32: a site's call, and then what the entry did.

push {lr}; bl ftrace_plt_caller
ldr ip, [pc, #4]; add ip, pc, ip; ldr pc, [ip]
.word slot - the address of this
.word ip - the address after the bl

An entry's first add becomes `b thunk`; what precedes it (bx pc; nop, for callers in T32) stays.
Lazy binding finds its slot by ip.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm.encode import (
    A32,
    ADD_IP_PC,
    LDR_IP,
    PLT_FIRST,
    PLT_LAST,
    PLT_NEXT,
    link,
    words,
)
from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, bytes_of

__all__ = ["THUNKS"]

WIDTH: Final = 16
"""Bytes of an entry that reaches everywhere (--long-plt); others are an instruction less."""
SIZE: Final = 28
CALLED: Final = 8
"""Bytes of a thunk's call, and of a site: an ip is as far behind its start."""
SLOT: Final = 20
"""Bytes of a thunk in front of the distance of its slot."""
TURNS: Final = {28: 2, 20: 6, 12: 10}
"""Of a modified immediate (A5.2.4): half of how far it is turned, by the lowest of its bits."""
LDR_PC_IP: Final = 0xE59C_F000  # ldr pc, [ip]
FINISH: Final = 0x80B0_B0B0
"""Nothing to do: the return address is in lr (Exception Handling ABI, 10.3)."""


def _branch(opcode: int, at: I64, to: I64) -> NDArray[np.uint32]:
    """``b`` or ``bl``, within A32."""
    none = np.zeros(len(at), bool)
    insn = link(at.view(np.uint64), to.view(np.uint64), none)
    return insn & np.uint32(A32.IMM) | np.uint32(opcode)


def _add(upper: int, distance: I64, lowest: int) -> I64:
    return upper << 12 | TURNS[lowest] << 8 | distance >> lowest & 0xFF


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    distance = slot - (jump + 8)
    last = PLT_LAST << 12 | distance & 0xFFF
    short = words(code)[:, 2] >> np.uint32(12) == PLT_LAST
    old = np.zeros((len(jump), WIDTH // 4), np.int64)
    old[:, 0] = np.where(
        short, _add(PLT_FIRST, distance, 20), _add(PLT_FIRST, distance & A32.WRAP, 28)
    )
    old[:, 1] = np.where(short, _add(PLT_NEXT, distance, 12), _add(PLT_NEXT, distance, 20))
    old[:, 2] = np.where(short, last, _add(PLT_NEXT, distance, 12))
    old[:, 3] = np.where(short, 0, last)
    return bytes_of(old), np.where(short, WIDTH - 4, WIDTH).astype(np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = words(old).copy()
    new[:, 0] = _branch(A32.B, jump, thunk)
    return bytes_of(new)


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    code = np.empty((len(old), SIZE // 4), np.int64)
    code[:, 0] = A32.PUSH_LR[0]
    code[:, 1] = _branch(A32.BL, thunk + 4, np.full(len(thunk), caller, np.int64))
    code[:, 2:5] = LDR_IP[1], ADD_IP_PC, LDR_PC_IP
    code[:, 5] = slot - (thunk + SLOT)
    code[:, 6] = jump + CALLED - (thunk + CALLED)
    return bytes_of(code & A32.WRAP)


THUNKS: Final = PltThunks(
    width=WIDTH,
    size=SIZE,
    reach=A32.REACH,
    old=_old,
    new=_new,
    make=_make,
    index=FINISH,
)
