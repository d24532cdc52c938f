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

from ftpatch.arch.assemble import template
from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, put

__all__ = ["THUNKS"]

JUMP = 6
"""Bytes of jmp *slot(%rip): ff 25 rel32."""
SHORT = 5
"""Bytes of call and of jmp: e8 rel32, e9 rel32."""
SIZE = 16


def _rows(text: str, mnemonics: tuple[str, ...], count: int) -> U8:
    code = np.frombuffer(template("x86_64", text, mnemonics), np.uint8)
    return np.tile(code, (count, 1))


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    del code  # there is but one form
    old = _rows("jmp qword ptr [rip]", ("jmp",), len(jump))
    put(old, 2, slot - (jump + JUMP))
    return old, np.full(len(jump), JUMP, np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = _rows("jmp 0x200000; int3", ("jmp", "int3"), len(old))
    put(new, 1, thunk - (jump + SHORT))
    return new


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    code = np.full((len(old), SIZE), 0xCC, np.uint8)  # int3
    text = "call 0x200000; jmp qword ptr [rip]"
    code[:, : SHORT + JUMP] = _rows(text, ("call", "jmp"), len(old))
    put(code, 1, caller - (thunk + SHORT))
    put(code, SHORT + 2, slot - (thunk + SHORT + JUMP))
    put(code, SHORT + JUMP, jump + SHORT - (thunk + SHORT))
    return code


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
