# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of i386:

call ftrace_plt_caller
jmp *slot, or jmp *slot(%ebx) of position-independent code
.long ip - the address after the call

An entry's jmp becomes `jmp thunk; int3`. What precedes it (endbr32, mov to ecx) and what follows
(push, jmp to the head: lazy binding comes there through the slot) stays.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, put
from ftpatch.arch.x86.plt_thunks import JUMP, SIZE, led_away, rows, thunks_of

__all__ = ["THUNKS"]

BY_EBX = 0xA3


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    """With ebx, the slot is relative to the GOT, whose place the instruction tells."""
    old = rows("i386", "jmp dword ptr [0x200000]", ("jmp",), len(jump))
    put(old, 2, slot)
    by_ebx = code[:, 1] == BY_EBX
    old[by_ebx] = rows("i386", "jmp dword ptr [ebx + 0x200000]", ("jmp",), int(by_ebx.sum()))
    old[by_ebx, 2:] = code[by_ebx, 2:JUMP]
    return old, np.full(len(jump), JUMP, np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    del old  # nothing of it stays
    return led_away("i386", jump, thunk)


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    del slot  # the entry's own jump is not relative to where it is
    return thunks_of("i386", old, jump, thunk, caller)


THUNKS: Final = PltThunks(
    width=JUMP,
    size=SIZE,
    reach=1 << 32,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("017c08"),  # alignments 1 and -4, return address in register 8
    initial=bytes.fromhex("0c04048801"),  # DW_CFA_def_cfa esp, 4; DW_CFA_offset 8, 1
)
