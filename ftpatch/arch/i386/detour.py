# SPDX-License-Identifier: MIT
"""The detour of i386:

push $place
call ftrace_caller
lea 4(%esp), %esp      flags stay
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
    text = f"push {PLACE}; call {CALLEE}; lea esp, [esp + 4]"
    code = bytearray(template("i386", text, ("pushl", "call", "leal")))
    struct.pack_into("<I", code, 1, place)  # 68 imm32
    struct.pack_into("<I", code, 6, (caller - (at + 10)) % (1 << 32))  # e8 rel32
    return bytes(code)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    del held  # it is in memory
    return [(5, cfa_offset(offset + 4)), (14, cfa_offset(offset))]


def _far(to: int) -> bytes:
    return b"\x68" + struct.pack("<I", to) + b"\xc3"  # push to; ret


SIZE: Final = 14
DETOUR: Final = Detour(
    size=SIZE,
    make=_make,
    stack=4,
    frames=_frames,
    link=8,
    far=FarDetour(entry=_far, size=SIZE, make=_make),
)
