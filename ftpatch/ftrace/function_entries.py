# SPDX-License-Identifier: MIT
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
from ftpatch.core.columns import among
from ftpatch.elf.symbols import Symbols
from ftpatch.ftrace.local_entries import local_entries
from ftpatch.image import Image

__all__ = ["function_starts", "prefixes"]


def function_starts(image: Image) -> NDArray[np.uint64]:
    """Addresses of the functions, uint64[n], sorted, by the symbols. Unwind tables are no help: gcc
    lets a function begin behind its pad there."""
    symbols = image.symbols
    functions = among(symbols.type, (Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC)) & (
        symbols.section != Symbols.SHN_UNDEF
    )
    return np.unique(symbols.value[functions])


def prefixes(
    image: Image, arch: Arch, record: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Bytes of pad between each record and its function, int64[n], 0 where the record is in it;
    and whether that is certain, bool[n].

    The next function counts only if nothing but NOPs lies between. Where no symbol tells, a pad of
    just the size of a site is all inside, but of a longer one any part may lie before: a call in
    the wrong place would have its end executed.
    """
    _, local = local_entries(image, arch)
    starts = np.unique(np.concatenate([function_starts(image), local]))
    code, _ = image.elf.gather(image.elf.offset_of(record), arch.around)
    run = arch.prefix(code)
    longer = run > arch.pad_size
    certain = np.full(len(record), 2 * int(longer.sum()) <= len(record))
    if not len(starts):
        return np.zeros(len(record), np.int64), certain
    at = np.minimum(np.searchsorted(starts, record), len(starts) - 1)
    distance = (starts[at] - record).view(np.int64)
    near = (distance > 0) & (distance <= run)
    landed = np.isin(record - np.uint64(arch.landing_size), starts)
    return np.where(near, distance, 0), certain | near | (distance == 0) | landed | ~longer
