# SPDX-License-Identifier: MIT
"""The detour of 32-bit ARM, in the set of the place:

push {ip, lr}
movw ip, place; movt ip, place >> 16
bl ftrace_caller                            (blx from T32)
pop {ip, lr}

Where the callee is out of reach, its address is loaded from the entry:
`movw lr, #; movt lr, #; add lr, pc, lr; ldr lr, [lr]; blx lr`. No instruction of these changes a
flag, and there is no unwind information, as programs have no .eh_frame.

Encodings: Arm ARM (DDI 0406C), A8.8 PUSH, MOV (immediate), MOVT, BL, POP, ADD, LDR, BLX.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from ftpatch.arch.arm.encode import link
from ftpatch.arch.detour import Detour, FarDetour
from ftpatch.core.columns import addresses

__all__ = ["DETOUR"]

IP, LR = 12, 14
PUSH: Final = (0xE92D_5000, 0x5000_E92D)  # push {ip, lr}; push.w
POP: Final = (0xE8BD_5000, 0x5000_E8BD)  # pop {ip, lr}; pop.w
CALL: Final = 12
"""Bytes before the call."""
LOADED: Final = (
    # add lr, pc, lr; ldr lr, [lr]; blx lr
    struct.pack("<3I", 0xE08F_E00E, 0xE59E_E000, 0xE12F_FF3E),
    # add lr, pc; ldr.w lr, [lr]; blx lr; nop.w
    struct.pack("<6H", 0x44FE, 0xF8DE, 0xE000, 0x47F0, 0xF3AF, 0x8000),
)
AHEAD: Final = (8, 4)
"""Bytes by which pc is ahead, of both sets."""


def _half(number: int, register: int, upper: bool, thumb: bool) -> bytes:
    """movw, or movt of the upper half."""
    if not thumb:
        word = 0xE340_0000 if upper else 0xE300_0000  # movt; movw
        word |= (number & 0xF000) << 4 | register << 12 | number & 0xFFF
        return word.to_bytes(4, "little")
    first = 0xF2C0 if upper else 0xF240  # movt; movw
    first |= (number >> 11 & 1) << 10 | number >> 12
    return struct.pack("<2H", first, (number >> 8 & 7) << 12 | register << 8 | number & 0xFF)


def _number(number: int, register: int, thumb: bool) -> bytes:
    low = _half(number & 0xFFFF, register, False, thumb)
    return low + _half(number >> 16 & 0xFFFF, register, True, thumb)


def _make(at: int, place: int, caller: int) -> bytes:
    thumb = at % 2 == 1
    insn = link(addresses((at & ~1) + CALL), addresses(caller), np.array([thumb]))
    return _around(place, insn.astype("<u4").tobytes(), thumb)


def _make_far(at: int, place: int, entry: int) -> bytes:
    thumb = at % 2 == 1
    distance = entry - ((at & ~1) + CALL + 8 + AHEAD[thumb])
    return _around(place, _number(distance, LR, thumb) + LOADED[thumb], thumb)


def _around(place: int, call: bytes, thumb: bool) -> bytes:
    push, pop = (struct.pack("<I", word[thumb]) for word in (PUSH, POP))
    return push + _number(place, IP, thumb) + call + pop


def _entry(to: int) -> bytes:
    return struct.pack("<I", to)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    del offset, held
    return []


DETOUR: Final = Detour(
    size=20,
    make=_make,
    stack=13,
    frames=_frames,
    link=LR,
    far=FarDetour(entry=_entry, size=36, make=_make_far),
)
