# SPDX-License-Identifier: MIT
"""The section .eh_frame read in sequence: some static programs have no search table for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf

__all__ = ["frames_in_section"]

WIDTHS = {0x0: 8, 0x2: 2, 0x3: 4, 0x4: 8, 0xA: 2, 0xB: 4, 0xC: 8}
"""Sizes of DW_EH_PE formats (bytes)."""


def frames_in_section(elf: Elf) -> NDArray[np.int64]:
    """The functions of all FDEs in sequence: start, end and the FDE's address of each, int64[n, 3].
    None where there is no section, or where it is damaged."""
    rows: list[tuple[int, int, int]] = []
    section = elf.section(".eh_frame")
    held = b""
    if section is not None and section.offset + section.size <= len(elf.data):
        held = elf.data[section.offset : section.offset + section.size].tobytes()
    at, base = 0, section.address if section else 0
    while at + 16 <= len(held):
        length, pointer, start, size = elf.order.unsigned(held[at : at + 16], 4).tolist()
        start -= (start & 1 << 31) << 1
        cie = at + 4 - pointer
        if not length or length > len(held) - at - 4:
            break
        if pointer and cie >= 0 and size and _is_pcrel(held[cie : cie + 64]):
            begin = base + at + 8 + start
            rows.append((begin, begin + size, base + at))
        at += 4 + length
    return np.array(rows, np.int64).reshape(-1, 3)


def _is_pcrel(cie: bytes) -> bool:
    """Return whether the FDEs of a CIE have the encoding 1b: the operand of R in "zR" or "zPLR"."""
    text, _, rest = cie[9:].partition(b"\0")
    at = 0
    for _ in range(2):  # code and data alignment
        while rest[at : at + 1] and rest[at] & 0x80:
            at += 1
        at += 1
    at += 2  # the return address, and the length of the augmentation data
    for letter in text[1:].decode("latin-1"):
        if letter == "R":
            return cie[8:9] in (b"\1", b"\3") and rest[at : at + 1] == b"\x1b"
        if letter == "P" and rest[at : at + 1]:
            at += WIDTHS.get(rest[at] & 0xF, len(rest))
        at += letter in "PL"
    return False
