# SPDX-License-Identifier: MIT
"""Implementations of functions that the dynamic linker chooses (STT_GNU_IFUNC): what the GOT slots
of their own image and of those that import them hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.names.functions import Functions
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import opened_memory

__all__ = ["implementations"]

WORD: Final = 8


def implementations(
    one: Loaded, loaded: Sequence[Loaded], functions: Functions, arch: Arch
) -> dict[int, int]:
    """Link addresses of the implementations in an image's memory, by those of its resolvers, as far
    as any image has bound them. Raises InputError for memory that cannot be read."""
    wanted = np.array(sorted(functions.resolvers), np.int64)
    known, out = set(functions.start.tolist()) - functions.resolvers, dict[int, int]()
    with opened_memory(one.process, one.mappings) as memory:
        for other in loaded:
            for place, resolver in _slots(other, one, wanted, arch):
                held, there = memory.read(other.above(place), WORD)
                bound = int.from_bytes(held.tobytes(), "little") - one.bias
                # Until it is called first, a slot leads back to its own image's PLT.
                if there.all() and bound in known:
                    out.setdefault(resolver, bound)
    return out


def _slots(
    image: Loaded, one: Loaded, resolvers: NDArray[np.int64], arch: Arch
) -> Iterator[tuple[int, int]]:
    """Link addresses of an image's slots that hold what resolvers of ``one`` chose, and of
    these."""
    relocations, symbols = image.file.relocations, image.file.dynamic_symbols
    if image is one:  # by address (R_*_IRELATIVE): there is no other kind that has neither
        own = (relocations.symbol == 0) & (relocations.type != arch.relative)
        own &= np.isin(relocations.addend, resolvers)
        yield from zip(
            relocations.place[own].tolist(), relocations.addend[own].tolist(), strict=True
        )
    table = one.file.dynamic_symbols
    rows = np.flatnonzero(np.isin(table.value.view(np.int64), resolvers))
    named = dict(zip(table.names(rows), table.value[rows].tolist(), strict=True))
    by_name = np.flatnonzero(np.isin(relocations.type, (*arch.got, arch.absolute)))
    by_name = by_name[relocations.symbol[by_name] < len(symbols)]
    names = symbols.names(relocations.symbol[by_name].astype(np.intp))
    for row, name in zip(by_name.tolist(), names, strict=True):
        if name in named:
            yield int(relocations.place[row]), named[name]
