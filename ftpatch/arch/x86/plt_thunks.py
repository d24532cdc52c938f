# SPDX-License-Identifier: MIT
"""Thunks of PLT entries of both x86:

    e8 rel32            call ftrace_plt_caller
    ff 25 or ff a3 ...  the entry's own jmp *slot
    rel32               .long ip - the address after the call

An entry's jmp becomes `jmp thunk; int3`. What precedes it and what follows stays.
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.assemble import template
from ftpatch.arch.contract import U8
from ftpatch.arch.plt_thunks import I64, put

__all__ = ["JUMP", "SHORT", "SIZE", "led_away", "rows", "thunks_of"]

JUMP = 6
"""Bytes of jmp *slot: ff 25 disp32, or ff a3 disp32 with ebx."""
SHORT = 5
"""Bytes of call and of jmp: e8 rel32, e9 rel32."""
SIZE = 16


def rows(arch: str, text: str, mnemonics: tuple[str, ...], count: int) -> U8:
    """The same instructions ``count`` times, uint8[count, size]."""
    return np.tile(np.frombuffer(template(arch, text, mnemonics), np.uint8), (count, 1))


def led_away(arch: str, jump: I64, thunk: I64) -> U8:
    """``jmp thunk; int3`` in place of each entry's jmp, uint8[n, JUMP]."""
    new = rows(arch, "jmp 0x200000; int3", ("jmp", "int3"), len(jump))
    put(new, 1, thunk - (jump + SHORT))
    return new


def thunks_of(arch: str, jumps: U8, jump: I64, thunk: I64, caller: int) -> U8:
    """The thunks of entries at ``jump``, whose ``jumps``, uint8[n, JUMP], are for the new place."""
    code = np.full((len(jump), SIZE), 0xCC, np.uint8)  # int3
    code[:, :SHORT] = rows(arch, "call 0x200000", ("call",), len(jump))
    put(code, 1, caller - (thunk + SHORT))
    code[:, SHORT : SHORT + JUMP] = jumps
    put(code, SHORT + JUMP, jump + SHORT - (thunk + SHORT))
    return code
