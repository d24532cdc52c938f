# SPDX-License-Identifier: MIT
"""The detour of riscv64:

addi sp, sp, -16; sd ra, 0(sp); sd t0, 8(sp)
lui t0, place >> 12; addiw t0, t0, place
auipc ra, ftrace_caller; jalr ra, ftrace_caller(ra)
ld ra, 0(sp); ld t0, 8(sp); addi sp, sp, 16

Where the callee is out of reach, ra is loaded from the entry, which is the address:
`auipc ra, entry; ld ra, entry(ra); jalr ra, 0(ra)`. Encodings: The RISC-V Instruction Set Manual,
volume I, "RV32/64G Instruction Set Listings".
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.detour import OFFSET, RESTORE, Detour, FarDetour, cfa_offset, uleb
from ftpatch.arch.riscv64.encode import RV, pair
from ftpatch.core.columns import addresses

__all__ = ["DETOUR"]

PUSH: Final = (
    0xFF01_0113,
    0x0011_3023,
    0x0051_3423,
)  # addi sp, sp, -16; sd ra, 0(sp); sd t0, 8(sp)
POP: Final = (0x0001_3083, 0x0081_3283, 0x0101_0113)  # ld ra, 0(sp); ld t0, 8(sp); addi sp, sp, 16
LUI_T0, ADDIW_T0 = 0x0000_02B7, 0x0002_829B  # lui t0, 0; addiw t0, t0, 0
LD_RA, JALR_RA = 0x0000_B083, 0x0000_80E7  # ld ra, 0(ra); jalr ra, 0(ra)
CALL: Final = 20
"""Bytes before the call."""


def _make(at: int, place: int, caller: int) -> bytes:
    return _around(place, *pair(RV.RA, addresses(at + CALL), addresses(caller))[0].tolist())


def _make_far(at: int, place: int, entry: int) -> bytes:
    auipc, jalr = pair(RV.RA, addresses(at + CALL), addresses(entry))[0].tolist()
    return _around(place, auipc, LD_RA | jalr & 0xFFF0_0000, JALR_RA)


def _around(place: int, *call: int) -> bytes:
    high = (place + RV.ROUND) & 0xFFFF_F000
    words = (*PUSH, LUI_T0 | high, ADDIW_T0 | (place & 0xFFF) << 20, *call, *POP)
    return struct.pack(f"<{len(words)}I", *words)


def _entry(to: int) -> bytes:
    return struct.pack("<Q", to)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # ra is at sp, that is at CFA - (offset + 16); the data alignment is -8. It is stored by the
    # second instruction, and its register has it up to the call.
    kept = b"" if held else bytes([OFFSET | RV.RA]) + uleb((offset + 16) // 8)
    back = b"" if held else bytes([RESTORE | RV.RA])
    return [(4, cfa_offset(offset + 16)), (8, kept), (32, back), (40, cfa_offset(offset))]


DETOUR: Final = Detour(
    size=40,
    make=_make,
    stack=2,
    frames=_frames,
    link=RV.RA,
    far=FarDetour(entry=_entry, size=44, make=_make_far),
)
