# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of x86_64:

call ftrace_plt_caller
jmp *slot(%rip)
.long ip - the address after the call

An entry's `jmp *slot(%rip)` becomes `jmp thunk; int3`. What precedes it (endbr64, bnd, mov to r11d)
and what follows (push, jmp to the head: lazy binding comes there through the slot) stays.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, put
from ftpatch.arch.x86.plt_thunks import JUMP, SHORT, SIZE, led_away, rows, thunks_of

__all__ = ["THUNKS"]


def _through(at: I64, slot: I64) -> U8:
    """``jmp *slot(%rip)`` at these addresses."""
    code = rows("x86_64", "jmp qword ptr [rip]", ("jmp",), len(at))
    put(code, 2, slot - (at + JUMP))
    return code


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    del code  # there is but one form
    return _through(jump, slot), np.full(len(jump), JUMP, np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    del old  # nothing of it stays
    return led_away("x86_64", jump, thunk)


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    del old  # its jump is relative to where it is
    return thunks_of("x86_64", _through(thunk + SHORT, slot), jump, thunk, caller)


THUNKS: Final = PltThunks(
    width=JUMP,
    size=SIZE,
    reach=1 << 30,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("017810"),  # alignments 1 and -8, return address in register 16
    initial=bytes.fromhex("0c07089001"),  # DW_CFA_def_cfa rsp, 8; DW_CFA_offset 16, 1
)
