# SPDX-License-Identifier: MIT
"""A kernel's own symbols: all that names its functions once it is stripped.

They are those of kallsyms (/proc/kallsyms with their types, see nm(1)), without sizes: a function
ends where the next symbol begins. Without KALLSYMS_ALL they are those of the text alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.relocations import Relocations
from ftpatch.elf.symbols import Symbols
from ftpatch.image.kallsyms.addresses import read_addresses
from ftpatch.image.kallsyms.names import read_names
from ftpatch.image.kallsyms.tables import find_tables

__all__ = ["OwnSymbols", "read_own_symbols"]

STB_LOCAL, STB_GLOBAL = 0, 1


@dataclass(frozen=True)
class OwnSymbols:
    """n symbols in the order of kallsyms: by address, and of those that share one, the first is
    what the kernel calls it.

    ``address`` uint64[n], as linked; ``kind`` uint8[n]: the letter that nm prints; ``name``
    uint32[n]: where each name begins in ``strings``, uint8[m], where each ends with a NUL byte.
    """

    address: NDArray[np.uint64]
    kind: NDArray[np.uint8]
    name: NDArray[np.uint32]
    strings: NDArray[np.uint8] = field(repr=False)

    def __len__(self) -> int:
        return len(self.address)

    def symbols(self, path: Path) -> Symbols:
        """Convert to a symbol table: functions (t, T, w, W) and objects, local (lower case), weak
        (w, W, v, V) and global ones, all of size 0."""
        code = np.isin(self.kind, _letters("tTwW"))
        weak = np.isin(self.kind, _letters("wWvV"))
        local = (self.kind >= ord("a")) & ~weak
        count = len(self)
        return Symbols(
            value=self.address,
            size=np.zeros(count, np.uint64),
            type=np.where(code, Symbols.STT_FUNC, Symbols.STT_OBJECT).astype(np.uint8),
            bind=np.where(weak, Symbols.STB_WEAK, np.where(local, STB_LOCAL, STB_GLOBAL)).astype(
                np.uint8
            ),
            section=np.full(count, Symbols.SHN_ABS, np.uint16),
            name=self.name,
            strings=self.strings,
            path=path,
            ranked=True,
        )


def _letters(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def read_own_symbols(elf: Elf, relocations: Relocations) -> OwnSymbols | None:
    """Find the kernel's own symbols by content; ``relocations`` are the image's. None if there are
    none (CONFIG_KALLSYMS off, fewer than 257) or their tables are damaged."""
    # What follows the last segment, symbols and debug information, is not part of the kernel.
    end = max((s.offset + s.size for s in elf.skeleton.segments), default=0)
    tables = find_tables(elf.data[:end], elf.word, elf.order)
    if tables is None:
        return None
    names = read_names(elf.data, tables)
    address = read_addresses(elf, relocations, tables)
    if names is None or address is None:
        return None
    kind, name, strings = names
    return OwnSymbols(address, kind, name, strings)
