# SPDX-License-Identifier: MIT
"""The detour of s390x:

lay %r15, -16(%r15); stmg %r0, %r1, 0(%r15)
lgfi %r0, place; brasl %r1, ftrace_caller
lmg %r0, %r1, 0(%r15); la %r15, 16(%r15)

None of these changes the condition code. Where the callee is out of reach, %r1 is loaded from the
entry, which is the address: `lgrl %r1, entry; basr %r1, %r1`. Encodings: z/Architecture Principles
of Operation (SA22-7832), chapter 7.
"""

from __future__ import annotations

from typing import Final

from ftpatch.arch.detour import Detour, FarDetour, cfa_offset
from ftpatch.arch.s390x.encode import Z, branch
from ftpatch.core.byte_order import BIG
from ftpatch.core.columns import addresses

__all__ = ["DETOUR"]

PUSH: Final = bytes.fromhex("e3f0 fff0 ff71 eb01 f000 0024")
POP: Final = bytes.fromhex("eb01 f000 0004 41f0 f010")
LGFI_R0: Final = bytes.fromhex("c001")  # lgfi %r0, imm32
BASR_R1: Final = bytes.fromhex("0d11")  # basr %r1, %r1
CALL: Final = len(PUSH) + Z.SIZE
"""Bytes before the call."""
ROOM: Final = 16
LINK, STACK = 14, 15
"""DWARF numbers."""


def _make(at: int, place: int, caller: int) -> bytes:
    return _around(place, branch(Z.BRASL_R1, addresses(at + CALL), addresses(caller)).tobytes())


def _make_far(at: int, place: int, entry: int) -> bytes:
    load = branch(Z.LGRL_R1, addresses(at + CALL), addresses(entry)).tobytes()
    return _around(place, load + BASR_R1)


def _around(place: int, call: bytes) -> bytes:
    return PUSH + LGFI_R0 + BIG.packed(place, 4) + call + POP


def _entry(to: int) -> bytes:
    return BIG.packed(to, 8)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # %r14 stays what it is: the return address, or what the function has made of it.
    return [(6, cfa_offset(offset + ROOM)), (CALL + Z.SIZE + len(POP), cfa_offset(offset))]


DETOUR: Final = Detour(
    size=CALL + Z.SIZE + len(POP),
    make=_make,
    stack=STACK,
    frames=_frames,
    link=LINK,
    far=FarDetour(entry=_entry, size=CALL + Z.SIZE + len(BASR_R1) + len(POP), make=_make_far),
)
