# SPDX-License-Identifier: MIT
"""The unwinders of a process, and the slots through which they look for unwind information.

    libgcc_s.so.1    call *slot    ->    _dl_find_object() of ld.so, or dl_iterate_phdr() of libc

A slot that was not bound yet holds an address in its own image, which would bind it. One of a
library that is loaded later is bound to what the symbol's row of .dynsym says then: its `export`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.symbols import Symbols
from ftpatch.process.loaded import Loaded
from ftpatch.process.memory import opened_memory
from ftpatch.process.throwing import throws

__all__ = ["EXPORTED", "LOOKUPS", "Export", "Slot", "Unwinders", "find_unwinders", "walks_of"]

LOOKUPS: Final = ("_dl_find_object", "dl_iterate_phdr")
"""The functions by which unwinders find unwind information."""
EXPORTED: Final = LOOKUPS[0]
"""The one whose export can be changed. Nobody but unwinders imports it, which keep its address in
their slots alone."""
VALUE: Final = 8
"""Offset of st_value in an Elf64_Sym, of ENTRY bytes."""
ENTRY: Final = 24
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


@dataclass(frozen=True)
class Export:
    """The word at an ``address`` that says to the dynamic linker where a function is, less the
    ``bias`` of its image; ``old``: what its file has there."""

    address: int
    bias: int
    old: int


@dataclass(frozen=True, kw_only=True)
class Unwinders:
    """The ``slots`` of all unwinders; ``functions``: what they are for, addresses by name;
    ``missed``: images that throw by an unwinder of their own that has none; ``export`` of EXPORTED,
    if there is one; ``binds``: some slots have yet to be filled, by what is exported."""

    slots: tuple[Slot, ...]
    functions: dict[str, int]
    missed: tuple[Loaded, ...]
    export: Export | None = None
    binds: bool = False

    @property
    def unbound(self) -> bool:
        """Test whether the dynamic linker has not bound every slot yet."""
        return any(slot.old != self.functions[slot.name] for slot in self.slots)

    def misses(self, one: Loaded) -> bool:
        """Test whether an image may throw exceptions, or let them pass, for which there is no
        slot."""
        return one in self.missed or (not (self.slots or self.binds) and throws(one.file))


def find_unwinders(
    loaded: Sequence[Loaded], entries: Mapping[str, int] = MappingProxyType({})
) -> Unwinders:
    """Find the unwinders among a process's images. ``entries``: addresses, by name, of what is
    exported in place of functions. Raises InputError."""
    functions, export = dict[str, int](), None
    for name in LOOKUPS:
        for one in loaded:
            if name not in functions and (row := _defined(one, name)) is not None:
                functions[name] = one.above(int(one.file.dynamic_symbols.value[row]))
                export = _export(one, row) if name == EXPORTED else export
    slots, missed, binds = list[Slot](), list[Loaded](), False
    for one in loaded:
        found = list(_slots(one))
        if not found or one.file.dynamic_symbols.find(GNU_LIBUNWIND) is not None:
            continue
        if not walks_of(one):
            if throws(one.file) and not _imports_walks(one):
                missed.append(one)  # its own, whose name was stripped
            continue
        held = [Slot(address, name, _word(one, address)) for address, name in found]
        if (
            all(slot.name == EXPORTED and slot.old == _of_file(one, slot) for slot in held)
            and export
        ):
            binds = True  # nothing is relocated there yet, or the first call will bind it
        elif all(_leads_there(one, slot, functions, entries) for slot in held):
            slots += held
        else:
            missed.append(one)
    return Unwinders(
        slots=tuple(slots),
        functions=functions,
        missed=tuple(missed),
        export=export,
        binds=binds,
    )


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


def _leads_there(
    one: Loaded, slot: Slot, functions: Mapping[str, int], entries: Mapping[str, int]
) -> bool:
    """Test whether a slot leads to its function, or to what is exported in its place, or is not
    bound yet; not to what others have put there."""
    low, high = one.span
    there = (functions.get(slot.name), entries.get(slot.name))
    return slot.name in functions and (slot.old in there or low <= slot.old < high)


def _of_file(one: Loaded, slot: Slot) -> int:
    """What a slot holds in the file."""
    address = np.array([(slot.address - one.bias) % (1 << 64)], np.uint64)
    at = int(one.file.elf.offset_of(address)[0])
    return int.from_bytes(one.file.data[at : at + WORD].tobytes(), "little") if at >= 0 else 0


def _defined(one: Loaded, name: str) -> int | None:
    """The row of a function of that name that others can import, None if there is none."""
    symbols = one.file.dynamic_symbols
    rows = [
        row for row in symbols.rows_named(name).tolist() if symbols.type[row] == Symbols.STT_FUNC
    ]
    return rows[0] if rows else None


def _export(one: Loaded, row: int) -> Export | None:
    """Where the dynamic linker reads a symbol's value. None if that is not where the file has
    it."""
    table = dynamic_tags(one.file.elf).get(Tag.SYMTAB)
    if table is None:
        return None
    address, old = table + row * ENTRY + VALUE, int(one.file.dynamic_symbols.value[row])
    slot = Slot(one.above(address), EXPORTED, old)
    if _of_file(one, slot) != old:
        return None
    return Export(slot.address, one.bias, old)


def _imports_walks(one: Loaded) -> bool:
    symbols = one.file.dynamic_symbols
    return any(len(symbols.rows_named(name, defined=False)) for name in WALKS)


def _word(one: Loaded, address: int) -> int:
    with opened_memory(one.process, one.mappings) as memory:
        held, _ = memory.read(address, WORD)
    return int.from_bytes(held.tobytes(), "little")
