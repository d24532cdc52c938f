# SPDX-License-Identifier: MIT
"""The detour of x86_64:

lea -128(%rsp), %rsp   the red zone
push $place
call ftrace_caller
lea 136(%rsp), %rsp    flags stay
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.assemble import template
from ftpatch.arch.detour import Detour, FarDetour, cfa_offset

__all__ = ["DETOUR"]

PLACE, CALLEE = 0x1234_5678, 0x20_0000
"""Placeholders in the template."""


def _make(at: int, place: int, caller: int) -> bytes:
    code = bytearray(
        template(
            "x86_64",
            f"lea rsp, [rsp - 128]; push {PLACE}; call {CALLEE}; lea rsp, [rsp + 136]",
            ("leaq", "pushq", "call", "leaq"),
        )
    )
    struct.pack_into("<I", code, 6, place)  # 48 8d 64 24 80 | 68 imm32
    struct.pack_into("<i", code, 11, caller - (at + 15))  # e8 rel32
    return bytes(code)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    del held  # it is in memory
    return [(5, cfa_offset(offset + 128)), (10, cfa_offset(offset + 136)), (23, cfa_offset(offset))]


def _far(to: int) -> bytes:
    # A shadow stack or not, nothing of it is an indirect branch's target.
    return bytes.fromhex("3e ff 25 00 00 00 00") + struct.pack("<Q", to)  # notrack jmp [rip]


SIZE: Final = 23
DETOUR: Final = Detour(
    size=SIZE,
    make=_make,
    stack=7,
    frames=_frames,
    link=16,
    far=FarDetour(entry=_far, size=SIZE, make=_make),
)
