"""Entries of a procedure linkage table, by what they jump through.

    x86-64   [endbr64] ... [bnd] jmp *slot(%rip)    ff 25 rel32, once in 8 or 16 bytes
    arm64    [bti c] adrp x16, page; ldr x17, [x16, #low]; add x16, x16, #low; [autia1716]; br x17

System V ABI, AMD64 supplement, section 5.2.5; ELF for the Arm 64-bit architecture, "PLT Sequences".
Link editors differ in what else stands there, and in how long the table's head is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8

__all__ = ["ENTRIES_OF", "Entries"]

Entries = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Start of each entry and the slot that it jumps through, addresses, int64[n]."""
BTI_C = 0xD503245F
BR_X17 = 0xD61F0220
AUTIA1716 = 0xD503219F


def _x86_64(code: U8, address: int, size: int) -> Entries:
    """``size``: sh_entsize, of which entries begin at multiples."""
    jump = np.flatnonzero((code[:-5] == 0xFF) & (code[1:-4] == 0x25))
    rel = np.zeros(len(jump), np.uint32)
    for i in range(4):
        rel |= code[jump + 2 + i].astype(np.uint32) << np.uint32(8 * i)
    entry = 8 if size == 8 else 16
    return address + jump // entry * entry, address + jump + 6 + rel.view(np.int32)


def _arm64(code: U8, address: int, size: int) -> Entries:
    del size  # some of an entry's instructions tell its start
    word = np.frombuffer(code[: len(code) // 4 * 4].tobytes(), "<u4").astype(np.int64)
    word = np.append(word, [0] * 4)
    page, load, last, behind = word[:-4], word[1:-3], word[3:-1], word[4:]
    found = ((page & 0x9F00001F) == 0x90000010) & ((load & 0xFFC003FF) == 0xF9400211)
    found &= (last == BR_X17) | ((last == AUTIA1716) & (behind == BR_X17))
    at = np.flatnonzero(found)
    # adrp: immlo in bits 29-30, immhi in bits 5-23, signed, in pages of 4096 bytes
    pages = (page[at] >> 29 & 3) | (page[at] >> 5 & 0x7FFFF) << 2
    pages -= pages >> 20 << 21
    slot = ((address + 4 * at) >> 12) + pages << 12
    slot += (load[at] >> 10 & 0xFFF) * 8
    lead = (at > 0) & (word[np.maximum(at - 1, 0)] == BTI_C)
    return address + 4 * (at - lead), slot


ENTRIES_OF: Mapping[str, Callable[[U8, int, int], Entries]] = MappingProxyType(
    {"x86_64": _x86_64, "arm64": _arm64}
)
"""By the architecture's name: the entries in a section's code, which stands at an address, and
whose header says how long they are."""
