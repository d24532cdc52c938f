# SPDX-License-Identifier: MIT
"""Branches of s390x. Instructions have two, four or six bytes, so every second byte is taken for
the start of one (encode.py has their forms):

    brcl, brasl, brcth                      4 GB either way
    brc, bras, brct, brctg, brxh, cgrj ...  64 KB
    exrl, larl                              4 GB: what is executed there, perhaps by `ex`

Of those that look so many are none: then a place has no jump for no reason, which is safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from ftpatch.arch.branches import I64, Branches, jumps_out
from ftpatch.arch.contract import U8
from ftpatch.arch.disassemble import Instruction
from ftpatch.arch.s390x.encode import EXECUTING, LONG_BRANCHES, SHORT_BRANCHES, Form
from ftpatch.core.byte_order import BIG

__all__ = ["BRANCHES"]

RETURNS: Final = "%r14"
CALLS: Final = ("bras", "brasl", "basr")


def _of_forms(code: U8, address: int, forms: tuple[Form, ...]) -> list[I64]:
    """Targets of what may be a branch of one of the forms, each int64[n]."""
    held = BIG.unsigned(np.append(code[: len(code) // 2 * 2], np.zeros(4, np.uint8)), 2)
    half = held.astype(np.uint16)
    first, second, third = half[:-2], half[1:-1], half[2:]
    found = []
    for form in forms:
        at = np.flatnonzero(
            (first & form.mask == form.first)
            & ((third & 0xFF == form.last) if form.last is not None else np.True_)
        )
        near = second[at].view(np.int16).astype(np.int64)
        wide = (second[at].astype(np.uint32) << np.uint32(16) | third[at]).view(np.int32)
        distance = wide.astype(np.int64) if form.wide else near
        found.append(address + 2 * at + 2 * distance)
    return found


def _long(code: U8, address: int) -> I64:
    """Targets; int64, sorted."""
    every = _of_forms(code, address, (*LONG_BRANCHES, *SHORT_BRANCHES, *EXECUTING))
    return np.asarray(np.sort(np.concatenate(every)), np.int64)


def _executed(code: U8, address: int) -> I64:
    """What `exrl` is about, and `larl`, by whose register `ex` may be; int64, sorted."""
    return np.asarray(np.sort(np.concatenate(_of_forms(code, address, EXECUTING))), np.int64)


def _short(code: U8, address: int) -> I64:
    """None: all of them are among the long ones."""
    return np.zeros(0, np.int64)


def _through(insn: Instruction) -> str:
    """The register that an instruction jumps through; empty for others, and for returns."""
    if insn.mnemonic != "br" or insn.operands == RETURNS:
        return ""
    return insn.operands


def _has_indirect_jump(instructions: Iterable[Instruction]) -> bool:
    """Return whether one of them is a jump through a register: a table may lead anywhere in the
    function."""
    return any(map(_through, instructions))


def _is_thunk(instructions: Iterable[Instruction]) -> bool:
    """Return whether they only jump to where a caller's register points."""
    first = next(iter(instructions), None)
    return first is not None and bool(_through(first))


BRANCHES: Final = Branches(
    long_targets=_long,
    short_targets=_short,
    has_indirect_jump=_has_indirect_jump,
    is_thunk=_is_thunk,
    jumps_out=jumps_out(lambda insn: insn.mnemonic.startswith(CALLS)),
    near=6,
    executed=_executed,
)
