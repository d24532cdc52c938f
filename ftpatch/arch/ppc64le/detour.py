# SPDX-License-Identifier: MIT
"""The detour of ppc64le:

stdu r1, -592(r1)
std r0, 32(r1); mflr r0; std r0, 40(r1)
lis r0, place >> 16; ori r0, r0, place; std r0, 48(r1)
bl ftrace_caller
ld r0, 40(r1); mtlr r0; ld r0, 32(r1); addi r1, r1, 592

The frame is below the 512 bytes that belong to the program (psABI, ELFv2, 2.2.2.4), and is that of
stubs/ppc64le/detour.h. Where the callee is out of reach, the entry calls it by its address:

mflr r0; std r0, 56(r1)
lis r0, to >> 48; ori r0, r0, to >> 32; sldi r0, r0, 32; oris r0, r0, to >> 16; ori r0, r0, to
mtlr r0; blrl
ld r0, 56(r1); mtlr r0; blr

Encodings: Power ISA 3.1, book I, 3.3.
"""

from __future__ import annotations

import struct
from typing import Final

from ftpatch.arch.detour import Detour, FarDetour, cfa_offset, uleb
from ftpatch.arch.ppc64le.encode import PPC

__all__ = ["DETOUR"]

FRAME: Final = 592
ENTER: Final = (0xF821_FDB1, 0xF801_0020, 0x7C08_02A6, 0xF801_0028)
# stdu r1,-592(r1); std r0,32(r1); mflr r0; std r0,40(r1)
LIS, ORI, STORE = 0x3C00_0000, 0x6000_0000, 0xF801_0030  # lis r0,0; ori r0,r0,0; std r0,48(r1)
LEAVE: Final = (0xE801_0028, 0x7C08_03A6, 0xE801_0020, 0x3821_0250)
# ld r0,40(r1); mtlr r0; ld r0,32(r1); addi r1,r1,592
KEEP: Final = (0x7C08_02A6, 0xF801_0038)  # mflr r0; std r0,56(r1)
SLDI, ORIS = 0x7800_07C6, 0x6400_0000  # sldi r0,r0,32; oris r0,r0,0
CALL: Final = (0x7C08_03A6, 0x4E80_0021)  # mtlr r0; blrl
BACK: Final = (0xE801_0038, 0x7C08_03A6, 0x4E80_0020)  # ld r0,56(r1); mtlr r0; blr
LR: Final = 65
"""Its DWARF number (psABI, ELFv2, 2.4)."""
LR_AT: Final = 40
OFFSET_EXTENDED, RESTORE_EXTENDED = b"\x05", b"\x06"
BEFORE: Final = 28
"""Bytes before the call."""


def _packed(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def _make(at: int, place: int, caller: int) -> bytes:
    passed = (LIS | place >> 16 & PPC.IMM, ORI | place & PPC.IMM, STORE)
    call = PPC.BL | (caller - (at + BEFORE)) & PPC.LI
    return _packed(*ENTER, *passed, call, *LEAVE)


def _entry(to: int) -> bytes:
    upper, high, low, least = (to >> shift & PPC.IMM for shift in (48, 32, 16, 0))
    address = (LIS | upper, ORI | high, SLDI, ORIS | low, ORI | least)
    return _packed(*KEEP, *address, *CALL, *BACK)


def _frames(offset: int, held: bool) -> list[tuple[int, bytes]]:
    # LR is at sp + 40, that is at CFA - (offset + 552); the data alignment is -8. Its register has
    # it up to the call.
    lr = bytes([LR])
    kept = b"" if held else OFFSET_EXTENDED + lr + uleb((offset + FRAME - LR_AT) // 8)
    back = b"" if held else RESTORE_EXTENDED + lr
    return [(4, cfa_offset(offset + FRAME)), (16, kept), (40, back), (48, cfa_offset(offset))]


DETOUR: Final = Detour(
    size=48,
    make=_make,
    stack=1,
    frames=_frames,
    link=LR,
    far=FarDetour(entry=_entry, size=48, make=_make),
)
