"""From a record to the function it belongs to.

With -fpatchable-function-entry=N,M a record points at the pad, of which M bytes come before the
function:

    record -> | M bytes of NOPs | function: [endbr, bti] | N - M bytes of NOPs | ...

Only what comes after the function's address is ever executed. With N == M nothing is: no site.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.image import Image
from ftpatch.image.symbols import Symbols
from ftpatch.image.unwind import unwind_starts

__all__ = ["function_starts", "prefixes"]


def function_starts(image: Image) -> NDArray[np.uint64]:
    """Addresses of the functions, uint64[n], sorted: by the symbols, else by the unwind table."""
    symbols = image.symbols
    functions = np.isin(symbols.type, [Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC]) & (
        symbols.section != Symbols.SHN_UNDEF
    )
    by_symbol = np.unique(symbols.value[functions])
    by_unwind = unwind_starts(image.elf)
    return by_symbol if len(by_symbol) >= len(by_unwind) else by_unwind


def prefixes(image: Image, arch: Arch, record: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Bytes of pad between each record and its function, int64[n]: 0 where the record is in it.

    The next function counts only if nothing but NOPs lies between.
    """
    starts = function_starts(image)
    if not len(starts):
        return np.zeros(len(record), np.int64)
    at = np.minimum(np.searchsorted(starts, record), len(starts) - 1)
    distance = (starts[at] - record).view(np.int64)
    code, _ = image.elf.gather(image.elf.offset_of(record), arch.around)
    near = (distance > 0) & (distance <= arch.prefix(code))
    return np.where(near, distance, 0)
