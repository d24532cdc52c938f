# SPDX-License-Identifier: MIT
"""The detour of arm64:

stp x30, x17, [sp, -16]!
movz x17, place; movk x17, place >> 16, lsl 16
bl ftrace_caller
ldp x30, x17, [sp], 16

Where the callee is out of reach, `ldr x30, entry; blr x30` for `bl`: the only registers that are
free are those that are kept, and x17 is taken. The entry is the address. What is mapped for detours
is not guarded (PROT_BTI), and wants no `bti c` of a callee.
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.assemble import template
from ftpatch.arch.detour import OFFSET, RESTORE, Detour, FarDetour, cfa_offset, uleb

__all__ = ["DETOUR"]


CALL, LOAD, BLR = 0x9400_0000, 0x5800_001E, 0xD63F_03C0
"""bl ., ldr x30, ., blr x30 (Arm ARM, DDI 0487, C6.2)."""


def _make(at: int, place: int, caller: int) -> bytes:
    return _around(place, CALL | (caller - (at + 12)) >> 2 & 0x3FF_FFFF)  # imm26


def _make_far(at: int, place: int, entry: int) -> bytes:
    return _around(place, LOAD | ((entry - (at + 12)) >> 2 & 0x7_FFFF) << 5, BLR)  # imm19


def _around(place: int, *call: int) -> bytes:
    code = template(
        "arm64",
        "stp x30, x17, [sp, -16]!; movz x17, 0; movk x17, 0, lsl 16; ldp x30, x17, [sp], 16",
        ("stp", "mov", "movk", "ldp"),
    )
    stp, movz, movk, ldp = struct.unpack("<4I", code)
    movz |= (place & 0xFFFF) << 5  # imm16 is bits 5 to 20
    movk |= place >> 16 << 5
    return struct.pack(f"<{4 + len(call)}I", stp, movz, movk, *call, ldp)


def _entry(to: int) -> bytes:
    return struct.pack("<Q", to)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # x30 is at sp, that is at CFA - (offset + 16); the data alignment is -8.
    kept = b"" if held else bytes([OFFSET | 30]) + uleb((offset + 16) // 8)
    back = b"" if held else bytes([RESTORE | 30])
    return [(4, cfa_offset(offset + 16) + kept), (20, cfa_offset(offset) + back)]


DETOUR: Final = Detour(
    size=20,
    make=_make,
    stack=31,
    frames=_frames,
    link=30,
    far=FarDetour(entry=_entry, size=24, make=_make_far),
)
