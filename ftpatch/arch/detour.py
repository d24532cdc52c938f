"""Prologue of a detour: calls the probes with everything as it was, and goes on.

x86_64   lea -128(%rsp), %rsp   the red zone
         push $place
         call ftrace_caller
         lea 136(%rsp), %rsp    flags stay
arm64    stp x30, x17, [sp, -16]!
         movz x17, place; movk x17, place >> 16, lsl 16
         bl ftrace_caller
         ldp x30, x17, [sp], 16
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ftpatch.arch.assemble import template

__all__ = ["DETOURS", "Detour"]

DEF_CFA_OFFSET, OFFSET, RESTORE = 0x0E, 0x80, 0xC0
"""DW_CFA_*; the last two with a register in the lower bits."""

PLACE, CALLEE = 0x1234_5678, 0x20_0000
"""Of templates: what is filled in."""


@dataclass(frozen=True)
class Detour:
    """``size`` bytes; ``make(at, place, caller)``: those at address ``at``, which tell the number
    of the place to what is at address ``caller``. ``frames(offset, held)``: what unwinders are told
    of them, (distance from their start, DW_CFA instructions), where the CFA is ``offset`` bytes
    from register ``stack`` (as DWARF counts) at the place, and the return address is ``held`` in
    memory."""

    size: int
    make: Callable[[int, int, int], bytes]
    stack: int
    frames: Callable[[int, bool], list[tuple[int, bytes]]]
    link: int
    """The register with the return address, as DWARF counts."""


def _x86_64(at: int, place: int, caller: int) -> bytes:
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


def _x86_64_frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    del held  # it is in memory
    return [(5, _offset(offset + 128)), (10, _offset(offset + 136)), (23, _offset(offset))]


def _arm64_frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # x30 is at sp, that is at CFA - (offset + 16); the data alignment is -8.
    kept = b"" if held else bytes([OFFSET | 30]) + _uleb((offset + 16) // 8)
    back = b"" if held else bytes([RESTORE | 30])
    return [(4, _offset(offset + 16) + kept), (20, _offset(offset) + back)]


def _offset(offset: int) -> bytes:
    return bytes([DEF_CFA_OFFSET]) + _uleb(offset)


def _uleb(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _arm64(at: int, place: int, caller: int) -> bytes:
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


DETOURS: Mapping[str, Detour] = {
    "x86_64": Detour(23, _x86_64, 7, _x86_64_frames, 16),
    "arm64": Detour(20, _arm64, 31, _arm64_frames, 30),
}
