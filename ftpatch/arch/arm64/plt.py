# SPDX-License-Identifier: MIT
"""A PLT of arm64:

    [bti c] adrp x16, page; ldr x17, [x16, #low]; add x16, x16, #low; [autia1716]; br x17

ELF for the Arm 64-bit architecture, "PLT Sequences".
"""

from __future__ import annotations

import numpy as np

from ftpatch.arch.contract import U8
from ftpatch.arch.plt import Entries

__all__ = ["entries"]

BTI_C = 0xD503245F
BR_X17 = 0xD61F0220
AUTIA1716 = 0xD503219F


def entries(code: U8, address: int, size: int, got: int) -> Entries:
    """Starts, jumps and slots."""
    del size, got  # the instructions themselves mark the start
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
    return address + 4 * (at - lead), address + 4 * at, slot
