# SPDX-License-Identifier: MIT
"""Symbols as kallsyms prints them: which name an address has, and how far it reaches.

scripts/kallsyms.c and scripts/mksysmap decide which symbols the kernel carries and in which order
names of one address stand; ``get_symbol_pos()`` in kernel/kallsyms.c takes the first of them, and
the next higher address as its end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among, held
from ftpatch.elf.symbols import Symbols

__all__ = ["Kallsyms", "read_kallsyms"]

IGNORED = (
    b"$",  # mapping symbols: $x, $d
    b".L",  # local labels
    b"L0\x01",  # GNU as's own, which LoongArch's keeps
    b"__pfx_",  # padding before a function
    b"__cfi_",  # type identifiers before a function
    b"__kcfi_typeid_",
    b"__efistub_",  # the EFI stub's copies
    b"__pi_$",
    b"__pi_.L",
    b"__kvm_nvhe_$",
    b"__kvm_nvhe_.L",
    b"__crc_",  # modversions
    b"__kstrtab_",
    b"__kstrtabns_",
    b"__ksymtab_",
)
"""Prefixes excluded by scripts/mksysmap, or by is_mapping_symbol() in
include/linux/module_symbol.h."""

LINKER = re.compile(r"__(start|stop|end)_.*|__.*_(start|end)", re.DOTALL)
"""Names provided by a linker script; they come after others at the same address."""


@dataclass(frozen=True)
class Kallsyms:
    """Defined symbols in kallsyms' order.

    ``row`` intp[n]: rows of ``symbols``, by address, then preference. ``group`` intp[n]: which
    distinct address each row has. ``start`` uint64[g]: the distinct addresses; ``first`` intp[g]:
    index into ``row`` of the symbol that names it.
    """

    symbols: Symbols = field(repr=False)
    row: NDArray[np.intp]
    group: NDArray[np.intp]
    start: NDArray[np.uint64]
    first: NDArray[np.intp]

    @cached_property
    def ends(self) -> NDArray[np.uint64]:
        """End of what begins at each distinct address, uint64[g + 1] (the last one stands for
        none): by the sizes of its symbols, or the end of memory if none has a size."""
        ends = np.append(self.start, np.uint64(0))
        end = self.symbols.value[self.row] + self.symbols.size[self.row]
        np.maximum.at(ends, self.group, end)
        start = np.append(self.start, np.uint64(0))  # a plain 0 would make floats of addresses
        return np.where(ends > start, ends, np.uint64(0xFFFF_FFFF_FFFF_FFFF))

    def groups_of(self, address: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Index of the symbol address at or before each address, intp[m]; -1 before the first."""
        return np.searchsorted(self.start, address, side="right") - 1

    def lookup(self, address: NDArray[np.uint64]) -> list[tuple[str, int, int]]:
        """(name, offset into it, its size up to the next symbol, all bytes) of each address.

        An address before the first symbol yields ``("", 0, 0)``.
        """
        group = self.groups_of(address)
        if not len(self.start):
            return [("", 0, 0)] * len(address)
        names = self.symbols.names(self.row[self.first[np.maximum(group, 0)]])
        ends = np.append(self.start[1:], self.start[-1:])
        return [
            (name, at - int(self.start[g]), int(ends[g]) - int(self.start[g]))
            if g >= 0
            else ("", 0, 0)
            for name, at, g in zip(names, address.tolist(), group.tolist(), strict=True)
        ]

    def places(self, address: NDArray[np.uint64]) -> list[str]:
        """``vfs_read+0x4`` of each address, empty before the first symbol."""
        found = self.lookup(address)
        return [f"{name}+{offset:#x}" if name else "" for name, offset, _ in found]


def read_kallsyms(symbols: Symbols, only: NDArray[np.uint64] | None = None) -> Kallsyms:
    """Order the symbols of an image like its kallsyms; ``only`` restricts them to those
    addresses."""
    kept = (symbols.section != Symbols.SHN_UNDEF) & ~among(
        symbols.type, (Symbols.STT_SECTION, Symbols.STT_FILE, Symbols.STT_TLS)
    )
    if only is not None:
        kept &= held(symbols.value, only)
    rows = np.flatnonzero(kept & (symbols.name != 0))
    rows = rows[~symbols.begin(rows, IGNORED)]
    rows = rows[np.argsort(symbols.value[rows], kind="stable")]
    value = symbols.value[rows]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = value[1:] != value[:-1]
    group = np.cumsum(fresh) - 1
    counts = np.bincount(group) if len(group) else np.empty(0, np.intp)
    shared = np.flatnonzero((counts > 1)[group]) if len(group) else np.empty(0, np.intp)
    if len(shared) and not symbols.ranked:
        names = symbols.names(rows[shared])
        weak = (symbols.bind[rows[shared]] == Symbols.STB_WEAK).tolist()
        keys = sorted(
            (g, w, bool(LINKER.fullmatch(n)), len(n) - len(n.lstrip("_")), n, i)
            for i, (g, w, n) in enumerate(zip(group[shared].tolist(), weak, names, strict=True))
        )
        rows[shared] = rows[shared][[key[-1] for key in keys]]
    first = np.flatnonzero(fresh)
    return Kallsyms(symbols, rows, group, value[first], first)
