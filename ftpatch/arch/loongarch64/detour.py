# SPDX-License-Identifier: MIT
"""The detour of loongarch64:

addi.d $sp, $sp, -16; st.d $ra, $sp, 0; st.d $t0, $sp, 8
lu12i.w $t0, place >> 12; ori $t0, $t0, place
bl ftrace_caller
ld.d $ra, $sp, 0; ld.d $t0, $sp, 8; addi.d $sp, $sp, 16

Where the callee is out of reach, $ra is loaded from the entry, which is the address:
`pcaddu12i $ra, entry; ld.d $ra, $ra, entry; jirl $ra, $ra, 0` for `bl`. Encodings: LoongArch
Reference Manual, volume 1, appendix B ("Table of Instruction Encoding").
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.detour import OFFSET, RESTORE, Detour, FarDetour, cfa_offset, uleb
from ftpatch.arch.loongarch64.encode import LA, address_of, branch
from ftpatch.core.columns import addresses

__all__ = ["DETOUR"]

RA: Final = 1
PUSH: Final = (0x02FF_C063, 0x29C0_0061, 0x29C0_206C)
"""addi.d $sp, $sp, -16; st.d $ra, $sp, 0; st.d $t0, $sp, 8."""
POP: Final = (0x28C0_0061, 0x28C0_206C, 0x02C0_4063)
"""ld.d $ra, $sp, 0; ld.d $t0, $sp, 8; addi.d $sp, $sp, 16."""
LU12I_T0, ORI_T0 = 0x1400_000C, 0x0380_018C  # lu12i.w $t0, 0; ori $t0, $t0, 0
LD_D, JIRL_RA = 0x28C0_0000, 0x4C00_0021  # ld.d rd, rj, si12; jirl $ra, $ra, 0
CALL: Final = 20
"""Bytes before the call."""


def _make(at: int, place: int, caller: int) -> bytes:
    return _around(place, int(branch(LA.BL, addresses(at + CALL), addresses(caller))[0]))


def _make_far(at: int, place: int, entry: int) -> bytes:
    pair = address_of(at + CALL, entry, RA)
    pcaddu12i, addi = (int.from_bytes(pair[n : n + 4], "little") for n in (0, 4))
    return _around(place, pcaddu12i, LD_D | addi & 0x003F_FFFF, JIRL_RA)


def _around(place: int, *call: int) -> bytes:
    load = LU12I_T0 | place >> 12 << 5, ORI_T0 | (place & 0xFFF) << 10
    words = (*PUSH, *load, *call, *POP)
    return struct.pack(f"<{len(words)}I", *words)


def _entry(to: int) -> bytes:
    return struct.pack("<Q", to)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # ra is at sp, that is at CFA - (offset + 16); the data alignment is -8. It is stored by the
    # second instruction, and its register has it up to the call.
    kept = b"" if held else bytes([OFFSET | RA]) + uleb((offset + 16) // 8)
    back = b"" if held else bytes([RESTORE | RA])
    return [(4, cfa_offset(offset + 16)), (8, kept), (28, back), (36, cfa_offset(offset))]


DETOUR: Final = Detour(
    size=36,
    make=_make,
    stack=3,
    frames=_frames,
    link=RA,
    far=FarDetour(entry=_entry, size=44, make=_make_far),
)
