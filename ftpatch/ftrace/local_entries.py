# SPDX-License-Identifier: MIT
"""Addresses at which calls within a file enter its functions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch, supports
from ftpatch.arch.local_entry import local_entry
from ftpatch.core.columns import among
from ftpatch.elf.symbols import Symbols
from ftpatch.image import Image

__all__ = ["entered_at", "local_entries"]


def local_entries(image: Image, arch: Arch) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Rows of the functions that are called at another address than their symbol's, intp[n], and
    that, uint64[n]: at a local entry, or with the bit of the second instruction set."""
    symbols = image.symbols
    functions = among(symbols.type, (Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)) & (
        symbols.section != Symbols.SHN_UNDEF
    )
    step = local_entry(arch.name, symbols.other) + symbols.mark
    rows = np.flatnonzero(functions & (step > 0))
    return rows, symbols.value[rows] + step[rows]


def entered_at(image: Image, arch: Arch, row: int) -> int:
    """Address at which a call within the file enters the function of a symbol. In a relocatable
    file that is the symbol: its loader adds the rest. Without st_other, as in a kernel's own
    kallsyms, the code tells."""
    value = int(image.symbols.value[row])
    if image.is_relocatable:
        return value
    if not supports(arch.name, "local_entry"):
        return value + int(image.symbols.mark[row])
    if image.symbols.st_other is None:
        at = image.elf.offset_of(image.symbols.value[row : row + 1], executable=True)
        code, there = image.elf.gather(at, arch.around)
        return value + arch.landing_size * int(arch.landing(code)[0] and there[0])
    return value + int(local_entry(arch.name, image.symbols.other[row : row + 1])[0])
