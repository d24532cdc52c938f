# SPDX-License-Identifier: MIT
"""The thunk of a PLT entry of arm64: a site's call, and then what the entry did.

mov x9, x30
bl  ftrace_plt_caller
adrp x16, slot; ldr x17, [x16, #low]; add x16, x16, #low; autia1716 or nop; br x17
.word ip - the address after the bl

An entry's adrp becomes `b thunk`; the bti c in front of it stays. At a PLT entry x9 is as free as
at a function's (AAPCS64, "General-purpose Registers"); lazy binding finds its slot by x16.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.arm64.encode import A64, branch, words
from ftpatch.arch.assemble import template
from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, PltThunks, bytes_of, put

__all__ = ["THUNKS"]

WIDTH = 20
"""Bytes of an entry with autia1716, from its adrp on; without, it is an instruction less."""
SIZE = 32
AUTIA1716 = 0xD503219F
AT = 0x1000
"""Address of the template."""


def _through(at: I64, slot: I64, signed: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """The jump through a slot from address ``at``, with autia1716 or nop, uint32[n, 5]."""
    text = "adrp x16, 0x1000; ldr x17, [x16]; add x16, x16, #0; nop; br x17"
    code = np.frombuffer(template("arm64", text, ("adrp", "ldr", "add", "nop", "br"), AT), "<u4")
    out = np.tile(code, (len(at), 1))
    pages, low = (slot >> 12) - (at >> 12), slot & 0xFFF
    out[:, 0] |= ((pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5).astype(np.uint32)
    out[:, 1] |= (low >> 3 << 10).astype(np.uint32)  # imm12 counts words of 8 bytes
    out[:, 2] |= (low << 10).astype(np.uint32)
    out[signed, 3] = AUTIA1716
    return out


def _old(jump: I64, slot: I64, code: U8) -> tuple[U8, NDArray[np.uint16]]:
    signed = words(code)[:, 3] == AUTIA1716
    old = _through(jump, slot, signed)
    old[~signed, 3], old[~signed, 4] = old[~signed, 4], 0  # without the nop
    return bytes_of(old), np.where(signed, WIDTH, WIDTH - 4).astype(np.uint16)


def _new(old: U8, jump: I64, thunk: I64) -> U8:
    new = words(old).copy()
    new[:, 0] = branch(A64.B, jump.view(np.uint64), thunk.view(np.uint64))
    return bytes_of(new)


def _make(old: U8, jump: I64, slot: I64, thunk: I64, caller: int) -> U8:
    code = np.zeros((len(old), SIZE // 4), np.uint32)
    code[:, 0] = A64.MOV_X9_LR
    at = (thunk + 4).view(np.uint64)
    code[:, 1] = branch(A64.BL, at, np.full(len(at), caller, np.uint64))
    code[:, 2:7] = _through(thunk + 8, slot, words(old)[:, 3] == AUTIA1716)
    out = bytes_of(code)
    put(out, SIZE - 4, jump + 4 - (thunk + 8))
    return out


THUNKS: Final = PltThunks(
    width=WIDTH,
    size=SIZE,
    reach=1 << 26,
    old=_old,
    new=_new,
    make=_make,
    head=bytes.fromhex("04781e"),  # alignments 4 and -8, return address in register 30
    initial=bytes.fromhex("0c1f00"),  # DW_CFA_def_cfa sp, 0
)
