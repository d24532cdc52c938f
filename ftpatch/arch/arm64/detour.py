# SPDX-License-Identifier: MIT
"""The detour of arm64:

stp x30, x17, [sp, -16]!
movz x17, place; movk x17, place >> 16, lsl 16
bl ftrace_caller
ldp x30, x17, [sp], 16
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.assemble import template
from ftpatch.arch.detour import OFFSET, RESTORE, Detour, cfa_offset, uleb

__all__ = ["DETOUR"]


def _make(at: int, place: int, caller: int) -> bytes:
    code = bytearray(
        template(
            "arm64",
            "stp x30, x17, [sp, -16]!; movz x17, 0; movk x17, 0, lsl 16; bl 0x200000; "
            "ldp x30, x17, [sp], 16",
            ("stp", "mov", "movk", "bl", "ldp"),
        )
    )
    movz, movk = struct.unpack_from("<2I", code, 4)
    distance = caller - (at + 12)
    struct.pack_into(
        "<3I",
        code,
        4,
        movz | (place & 0xFFFF) << 5,  # imm16 is bits 5 to 20
        movk | place >> 16 << 5,
        0x9400_0000 | distance >> 2 & 0x3FF_FFFF,  # bl: imm26
    )
    return bytes(code)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # x30 is at sp, that is at CFA - (offset + 16); the data alignment is -8.
    kept = b"" if held else bytes([OFFSET | 30]) + uleb((offset + 16) // 8)
    back = b"" if held else bytes([RESTORE | 30])
    return [(4, cfa_offset(offset + 16) + kept), (20, cfa_offset(offset) + back)]


DETOUR: Final = Detour(size=20, make=_make, stack=31, frames=_frames, link=30)
