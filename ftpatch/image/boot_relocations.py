# SPDX-License-Identifier: MIT
"""The relocations of an x86 kernel that its decompressor applies when it moves the kernel (KASLR).

They follow the ELF file in the payload, as lists of the low halves of addresses, in words of four
bytes (arch/x86/tools/relocs.c, handle_relocations() in arch/x86/boot/compressed/misc.c):

    | ELF file | 0 | 64-bit ... | 0 | inverse 32-bit ... | 0 | 32-bit ... |     x86-64, up to v6.14
    | ELF file | 0 | 64-bit ... | 0 | 32-bit ... |                              x86-64, since
    | ELF file | 0 | 32-bit ... |                                               i386

Each is read from its end down to a zero, the last one first. So only the first can get shorter:
what is lost at its front looks like more of the zero before it.

Every slot of the table is named there, since a record is an address. So a null record that keeps
its entry is not null any more once the kernel was moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf

__all__ = ["BootRelocations", "read_boot_relocations"]

WORD = 4
MAX_SIZE = 1 << 26
"""Maximum bytes of all lists; 6.1 has 0.9 MB."""
LISTS = {8: (2, 3), 4: (1, 1)}
"""Fewest and most lists, by the bytes of an address."""


@dataclass(frozen=True, slots=True)
class BootRelocations:
    """n entries, in the order of the file: ``entry`` int64[n] (file offset), ``place`` uint64[n]
    (virtual address that is written to), ``width`` int64[n] (bytes written there), ``list``
    int64[n] (number of its list, 0 is the first in the file)."""

    entry: NDArray[np.int64]
    place: NDArray[np.uint64]
    width: NDArray[np.int64]
    list: NDArray[np.int64]

    def touch(self, address: NDArray[np.uint64], width: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Test which ranges of ``width`` bytes at an address they write to, bool[m]."""
        start = np.sort(self.place)
        end = np.sort(self.place + self.width.astype(np.uint64))
        begun = np.searchsorted(start, address + width.astype(np.uint64))
        return np.asarray(begun > np.searchsorted(end, address, side="right"))


def read_boot_relocations(elf: Elf, end: int) -> BootRelocations:
    """The lists between an ELF file and the offset ``end``; empty unless all that is there are such
    lists, and all of their entries lie in the kernel."""
    none = BootRelocations(
        np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64)
    )
    start = elf.end
    if not elf.sections or not 2 * WORD <= end - start <= MAX_SIZE or (end - start) % WORD:
        return none
    word = elf.order.unsigned(elf.data[start:end], 4).astype(np.uint32)
    ends = word == 0
    fewest, most = LISTS[elf.word]
    # An entry may be gone from the front of a list: then there are more zeros.
    which = np.cumsum(ends & ~np.append(False, ends[:-1])) - 1
    if not ends[0] or not fewest <= int(which[-1]) + 1 <= most:
        return none
    rows = np.flatnonzero(~ends)
    place = word[rows].astype(np.int32).astype(np.int64).view(np.uint64)
    place = place if elf.word == 8 else word[rows].astype(np.uint64)
    # Per-CPU data is moved too: where it is loaded, for which no segment need stand.
    text = elf.text[:, 0].min(initial=0xFFFF_FFFF_FFFF_FFFF)
    last = max((s.address + s.memory_size for s in elf.skeleton.segments), default=0)
    if not len(rows) or (place < text).any() or (place >= np.uint64(last)).any():
        return none
    width = np.where((which[rows] == 0) & (elf.word == 8), 8, WORD)
    return BootRelocations(start + rows * WORD, place, width, which[rows])
