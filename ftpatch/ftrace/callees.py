# SPDX-License-Identifier: MIT
"""Callees of sites, resolved through PLT entries, veneers and GOT slots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.core.columns import addresses, among
from ftpatch.ftrace.local_entries import local_entries
from ftpatch.image import Image
from ftpatch.image.kallsyms.kallsyms import read_kallsyms

__all__ = ["CALLERS", "Targets", "read_targets"]

CALLERS = ("ftrace_caller", "ftrace_regs_caller")
"""Entries of an image that a site may call, besides the compiled-in callee."""
NEAR = 16
"""Upper bound of the bytes of ftrace_caller that a stub with the ops pointer skips."""


@dataclass(frozen=True, slots=True)
class Targets:
    """m distinct callees: ``addr`` uint64[m], sorted; the address each site calls, or, where
    ``got``, bool[m], of the slot it calls through. ``name`` is as kallsyms has it or ``0x...``;
    ``final`` uint64[m] is where the call ends up, 0 where another file decides."""

    addr: NDArray[np.uint64]
    got: NDArray[np.bool_]
    name: tuple[str, ...]
    final: NDArray[np.uint64]

    def index(self, addr: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Row of each address (which must be one of them)."""
        return np.minimum(np.searchsorted(self.addr, addr), max(len(self.addr) - 1, 0))

    def are(self, names: tuple[str, ...]) -> NDArray[np.uint64]:
        """Addresses of the callees with one of these names."""
        return self.addr[[name in names for name in self.name]]


def read_targets(
    image: Image, arch: Arch, addr: NDArray[np.uint64], got: NDArray[np.bool_]
) -> Targets:
    """Resolve the distinct values of ``addr``, of which those with ``got`` are slots."""
    unique, first = np.unique(addr, return_index=True)
    slots = got[first]
    names, finals = [], []
    direct, named = _entry_names(image, arch, unique), _named_slots(image, arch)
    codes, _ = image.elf.gather(image.elf.offset_of(unique, executable=True), arch.around)
    rows = zip(unique.tolist(), slots.tolist(), codes, strict=True)
    for value, slot, code in rows:
        name, final = direct.get(value, ""), value
        if slot:
            name, final = _slot(image, arch, value, named)
        elif not name:
            name, final = _stub(image, arch, value, code.tobytes(), named)
        names.append(name or hex(value))
        finals.append(final)
    return Targets(unique, slots, tuple(names), np.array(finals, np.uint64))


def _names(image: Image, addr: NDArray[np.uint64]) -> dict[int, str]:
    known = read_kallsyms(image.symbols, only=addr)
    names = image.symbols.names(known.row[known.first])
    return dict(zip(known.start.tolist(), names, strict=True))


def _entry_names(image: Image, arch: Arch, addr: NDArray[np.uint64]) -> dict[int, str]:
    """Names of functions by their symbol's address, or by that of their local entry."""
    rows, entry = local_entries(image, arch)
    called = np.isin(entry, addr)
    start, entry = image.symbols.value[rows[called]], entry[called]
    names = _names(image, np.unique(np.concatenate([addr, start])))
    pairs = zip(entry.tolist(), start.tolist(), strict=True)
    return {local: names[at] for local, at in pairs if at in names} | names


def _stub(
    image: Image, arch: Arch, addr: int, code: bytes, named: dict[int, int]
) -> tuple[str, int]:
    """A PLT entry or veneer at ``addr``; else no name and the address itself."""
    target = arch.veneer_target(code, addr)
    if target < 0:
        return _slot(image, arch, -target, named)
    if target > 0:
        # A stub with the ops pointer continues a few instructions into ftrace_caller.
        near = addresses(target)[0] - np.arange(0, NEAR, 4, dtype=np.uint64)
        names = _names(image, near)
        entry = next((at for at, name in names.items() if name in CALLERS), target)
        at = target if target in names else entry
        return names.get(at, ""), at
    return "", addr


def _slot(image: Image, arch: Arch, slot: int, named: dict[int, int]) -> tuple[str, int]:
    """Read a GOT slot, by its relocation (``named``: slot -> row of the dynamic symbols) or,
    in a static file, by its contents."""
    if slot in named:
        symbols, row = image.dynamic_symbols, np.array([named[slot]], np.intp)
        return symbols.names(row)[0], int(symbols.value[row[0]])
    relocations = image.relocations
    relative = int(relocations.at(addresses(slot), (arch.relative,))[0])
    offset = int(image.elf.offset_of(addresses(slot))[0])
    held = int(relocations.addend[relative]) if relative >= 0 else 0
    if not held and 0 <= offset <= len(image.data) - image.elf.word:
        held = image.elf.word_at(offset)
    where = addresses(held)
    return _names(image, where).get(int(where[0]), ""), int(where[0])


def _named_slots(image: Image, arch: Arch) -> dict[int, int]:
    """GOT slots with a symbol's relocation -> the symbol's row in the dynamic symbols."""
    relocations = image.relocations
    rows = np.flatnonzero(among(relocations.type, arch.got))
    rows = rows[relocations.symbol[rows] < len(image.dynamic_symbols)]
    pairs = zip(relocations.place[rows].tolist(), relocations.symbol[rows].tolist(), strict=True)
    return dict(pairs)
