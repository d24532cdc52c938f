# SPDX-License-Identifier: MIT
"""Changes of a kernel to its text on x86_64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ftpatch.arch.contract import U8, U64
from ftpatch.arch.text_patching import JumpLabels, Patcher, TextPatching
from ftpatch.arch.x86.alternatives import Alternatives
from ftpatch.arch.x86.nops import P6
from ftpatch.arch.x86.text_sites import (
    endbrs,
    locks,
    moved_words,
    paravirt,
    relative,
    retpolines,
    returns,
    runtime_constants,
    static_calls,
)

__all__ = ["TEXT_PATCHING"]

CALL, JMP, JMP8 = 0xE8, 0xE9, 0xEB
NOP2 = b"\x66\x90"  # xchg %ax,%ax


class _TextPatching:
    patchers: Sequence[Patcher] = (
        moved_words,
        locks,
        runtime_constants,
        paravirt,
        retpolines,
        returns,
        Alternatives("x86_64"),
        endbrs,
        static_calls,
    )
    breakpoint = b"\xcc"  # int3
    entry_nops: Sequence[bytes] = (P6,)
    branch_nop = P6
    branch_size = 5

    def jump_labels(self, code: U8, at: U64, target: U64) -> JumpLabels:
        """jmp rel8 or 66 90; jmp rel32 or NOP5. The file has either form, of the same size."""
        short = (code[:, 0] == JMP8) | (code[:, :2] == np.frombuffer(NOP2, np.uint8)).all(axis=1)
        jump, nop = relative(JMP, at, target), np.tile(np.frombuffer(P6, np.uint8), (len(at), 1))
        jump[short, 0] = JMP8
        jump[short, 1] = (target - at - np.uint64(2))[short].astype(np.uint8)
        nop[short, :2] = np.frombuffer(NOP2, np.uint8)
        return JumpLabels(nop, jump, np.where(short, 2, 5))

    def jump_target(self, code: bytes, at: int) -> int:
        """``e9 rel32`` or ``e8 rel32``."""
        if len(code) < 5 or code[0] not in (CALL, JMP):
            return 0
        rel = int.from_bytes(code[1:5], "little", signed=True)
        return (at + 5 + rel) & 0xFFFF_FFFF_FFFF_FFFF


TEXT_PATCHING: Final[TextPatching] = _TextPatching()
