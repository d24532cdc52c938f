# SPDX-License-Identifier: MIT
"""The unwinders of a process, and the slots through which they look for unwind information.

    libgcc_s.so.1    call *slot    ->    _dl_find_object() of ld.so, or dl_iterate_phdr() of libc

A slot that was not bound yet holds an address in its own image, which would bind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ftpatch.elf.symbols import Symbols
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import opened_memory
from ftpatch.process.throwing import throws

__all__ = ["LOOKUPS", "Slot", "Unwinders", "find_unwinders", "walks_of"]

LOOKUPS: Final = ("_dl_find_object", "dl_iterate_phdr")
"""The functions by which unwinders find unwind information."""
WALKS: Final = (
    *("_Unwind_RaiseException", "_Unwind_Resume", "_Unwind_Resume_or_Rethrow"),
    *("_Unwind_ForcedUnwind", "_Unwind_Backtrace"),
)
"""The functions that walk up a stack: one of them is on it all the time."""
GNU_LIBUNWIND: Final = "unw_backtrace"
"""A function of libunwind by the GNU project, which other libraries of that name lack. It cannot
evaluate the unwind information of return_to_handler, and ends its walk where it finds none."""
WORD: Final = 8


@dataclass(frozen=True)
class Slot:
    """The word at an ``address`` through which an unwinder calls the function of that ``name``,
    and what it holds, ``old``."""

    address: int
    name: str
    old: int


@dataclass(frozen=True, kw_only=True)
class Unwinders:
    """The ``slots`` of all unwinders; ``functions``: what they are for, addresses by name;
    ``missed``: images that throw by an unwinder of their own that has none."""

    slots: tuple[Slot, ...]
    functions: dict[str, int]
    missed: tuple[Loaded, ...]

    @property
    def unbound(self) -> bool:
        """Test whether the dynamic linker has not bound every slot yet."""
        return any(slot.old != self.functions[slot.name] for slot in self.slots)

    def misses(self, one: Loaded) -> bool:
        """Test whether an image may throw exceptions, or let them pass, for which there is no
        slot."""
        return one in self.missed or (not self.slots and throws(one.file))


def find_unwinders(loaded: Sequence[Loaded]) -> Unwinders:
    """Find the unwinders among a process's images. Raises InputError."""
    functions = dict[str, int]()
    for name in LOOKUPS:
        for one in loaded:
            if name not in functions and (address := _defined(one, name)):
                functions[name] = address
    slots, missed = list[Slot](), list[Loaded]()
    for one in loaded:
        found = list(_slots(one))
        if not found or one.file.dynamic_symbols.find(GNU_LIBUNWIND) is not None:
            continue
        if not walks_of(one):
            if throws(one.file) and not _imports_walks(one):
                missed.append(one)  # its own, whose name was stripped
            continue
        held = [Slot(address, name, _word(one, address)) for address, name in found]
        if all(_leads_there(one, slot, functions) for slot in held):
            slots += held
        else:
            missed.append(one)
    return Unwinders(slots=tuple(slots), functions=functions, missed=tuple(missed))


def walks_of(one: Loaded) -> list[tuple[int, int]]:
    """Bounds of an image's functions that walk up a stack, in the process."""
    out = set[tuple[int, int]]()
    for symbols in (one.file.dynamic_symbols, one.file.symbols):
        for name in WALKS:
            for row in symbols.rows_named(name).tolist():
                if symbols.type[row] == Symbols.STT_FUNC:
                    start = one.above(int(symbols.value[row]))
                    out.add((start, start + int(symbols.size[row])))
    return sorted(out)


def _slots(one: Loaded) -> Iterator[tuple[int, str]]:
    """Addresses of the words that the dynamic linker fills with the address of a lookup."""
    symbols = one.file.dynamic_symbols
    for name in LOOKUPS:
        rows = symbols.rows_named(name, defined=False)
        rows = rows[symbols.section[rows] == Symbols.SHN_UNDEF]
        if not len(rows):
            continue
        relocations = one.file.relocations
        of = np.isin(relocations.symbol, rows) & (relocations.addend == 0)
        for place in np.unique(relocations.place[of]).tolist():
            yield one.above(place), name


def _leads_there(one: Loaded, slot: Slot, functions: dict[str, int]) -> bool:
    """Test whether a slot leads to its function, or is not bound yet; not to what others have put
    there."""
    low, high = one.span
    return slot.name in functions and (slot.old == functions[slot.name] or low <= slot.old < high)


def _defined(one: Loaded, name: str) -> int:
    """The address of a function of that name that others can import, 0 if there is none."""
    symbols = one.file.dynamic_symbols
    rows = [
        row for row in symbols.rows_named(name).tolist() if symbols.type[row] == Symbols.STT_FUNC
    ]
    return one.above(int(symbols.value[rows[0]])) if rows else 0


def _imports_walks(one: Loaded) -> bool:
    symbols = one.file.dynamic_symbols
    return any(len(symbols.rows_named(name, defined=False)) for name in WALKS)


def _word(one: Loaded, address: int) -> int:
    with opened_memory(one.process, one.mappings) as memory:
        held, _ = memory.read(address, WORD)
    return int.from_bytes(held.tobytes(), "little")
