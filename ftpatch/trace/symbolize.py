# SPDX-License-Identifier: MIT
"""Naming addresses in traces: the functions of programs and their libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.debuginfo.lines import Lines
from ftpatch.image import Image
from ftpatch.image.injected import laid_in_at
from ftpatch.image.kallsyms.kallsyms import Kallsyms, read_kallsyms
from ftpatch.names.demangle import demangled
from ftpatch.names.plt import plt_symbols
from ftpatch.trace.mapped import Mapped

__all__ = ["Functions", "Program"]

DENSE = 1 << 22
"""Maximum code for which a table beats a search: sites in the first megabytes of a program."""
MAX_SYMBOL = 1 << 32
"""A symbol of this size or more has an unknown size."""
NO_END = (1 << 64) - 1
"""The end of a symbol of unknown size: for one of a kernel, that is near."""
NO_CODE = (1 << 64) - 1


@dataclass(frozen=True, eq=False)
class Program:
    """A traced program. ``image`` is None if unknown; ``base``: link address that the trace counts
    from; ``plain``: use names as they are in the symbol table; ``lines``: line information, if
    sources are wanted; ``libraries``: those traced with it, each as a Program whose ``base`` is
    where ``func`` 0 would be."""

    image: Image | None
    base: int
    plain: bool = False
    lines: Lines | None = None
    libraries: tuple[tuple[Mapped, Program], ...] = ()
    name: str = ""
    """A library's file."""
    symbols: dict[str, str] = field(default_factory=dict)
    """Symbols by the names reports use, where they differ."""

    def sites(self, func: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Link addresses within the functions' sites, uint64[n]: the recorded address is just after
        the site."""
        return func.astype(np.uint64) + np.uint64((self.base - 1) % (1 << 64))

    def parts(self, func: NDArray[np.uint32]) -> Iterator[tuple[Program, NDArray[np.intp]]]:
        """Yield the program and its libraries, each with the indices of its functions, intp[n]."""
        place = func.astype(np.int64) - 1
        own = np.ones(len(func), bool)
        for mapped, library in self.libraries:
            inside = (place >= mapped.start) & (place < mapped.start + mapped.size)
            own &= ~inside
            if inside.any():
                yield library, np.flatnonzero(inside)
        if own.any():
            yield self, np.flatnonzero(own)

    def lookup(
        self, address: NDArray[np.uint64]
    ) -> tuple[list[str], NDArray[np.uint64], NDArray[np.bool_]]:
        """Look up the function around each link address: its name, its start, uint64[n], and
        whether there is one, bool[n]; without one, name and start are the address itself."""
        starts = address.copy()
        known = np.zeros(len(address), bool)
        found = np.array([hex(at) for at in address.tolist()], object)
        if self.image is None:
            return list(found.tolist()), starts, known
        for kallsyms in self._tables:
            group = kallsyms.groups_of(address)
            here = (group >= 0) & (address < kallsyms.ends[group])
            here &= self.image.elf.offset_of(address, executable=True) >= 0
            rows = np.flatnonzero(here & ~known)
            known[rows], starts[rows] = True, kallsyms.start[group[rows]]
            names = [name for name, _, _ in kallsyms.lookup(address[rows])]
            found[rows] = [self.called(name) for name in names]
        return list(found.tolist()), starts, known

    def size(self, start: int) -> int:
        """Size in bytes of the function at a link address; 0 if no symbol says."""
        for kallsyms in self._tables:
            group = kallsyms.groups_of(np.array([start], np.uint64))[0]
            if group >= 0 and int(kallsyms.start[group]) == start:
                end = int(kallsyms.ends[group])
                return end - start if end != NO_END and end - start < MAX_SYMBOL else 0
        return 0

    @cached_property
    def _tables(self) -> tuple[Kallsyms, ...]:
        """The PLT's entries and all symbols, whichever exist."""
        if self.image is None:
            return ()
        tables = read_kallsyms(plt_symbols(_before(self.image))), self.image.kallsyms
        return tuple(table for table in tables if len(table.start))

    def called(self, name: str) -> str:
        """Return the name reports use for a symbol."""
        shown = name if self.plain else demangled(name)
        if shown != name:
            self.symbols[shown] = name
        return shown

    def callers(
        self, address: NDArray[np.uint64], bias: int, mapped: Sequence[Mapped] = ()
    ) -> list[str]:
        """Name the functions that calls return to, by return address in memory. ``bias`` is the
        program's load address minus its link address, ``mapped`` describes its libraries."""
        names = np.array([hex(at) for at in address.tolist()], object)
        own = np.ones(len(address), bool)
        for one, (_, library) in zip(mapped, self.libraries, strict=False):
            distance = address - np.uint64((one.bias + one.base + 1) % (1 << 64))
            inside = own & (distance < np.uint64(one.size))
            own &= ~inside
            library._name(names, np.flatnonzero(inside), address, one.bias)
        self._name(names, np.flatnonzero(own), address, bias)
        return list(names.tolist())

    def _name(
        self, names: NDArray[np.object_], rows: NDArray[np.intp], at: NDArray[np.uint64], bias: int
    ) -> None:
        """Fill in the names of callers where known."""
        found, _, known = self.lookup(at[rows] - np.uint64((bias + 1) % (1 << 64)))
        for row, name, ok in zip(rows.tolist(), found, known.tolist(), strict=True):
            if ok:
                names[row] = name


def _before(image: Image) -> Image:
    """The image before a tracer or probes were inserted: they replace the PLT's jumps by their
    own."""
    if laid_in_at(image) is None:
        return image
    blocks = image.blocks
    return image.altered([block.changes for block in blocks], old=True)


@dataclass
class Functions:
    """The functions of several programs, numbered in order of appearance. ``name`` of each;
    ``symbol``: its name in the symbol table; ``address``: link address of its start; ``source``:
    file and line, empty if unknown; ``library``: the file it is in, empty for the program."""

    programs: Sequence[Program]
    name: list[str] = field(default_factory=list)
    symbol: list[str] = field(default_factory=list)
    address: list[int] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    # Never empty, so that searches work; the last entry is no code.
    _codes: NDArray[np.uint64] = field(default_factory=lambda: np.array([NO_CODE], np.uint64))
    _ids: NDArray[np.int32] = field(default_factory=lambda: np.array([-1], np.int32))
    _table: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    _starts: dict[Program, tuple[NDArray[np.uint64], NDArray[np.int32]]] = field(
        default_factory=dict
    )

    def __len__(self) -> int:
        return len(self.name)

    def stand_in(self, name: str) -> None:
        """Number something that is no function, but the caller of some."""
        columns: tuple[list[str], ...] = (self.name, self.symbol, self.source, self.library)
        for column, text in zip(columns, (name, "", "", ""), strict=True):
            column.append(text)
        self.address.append(0)

    def program_with(self, number: int) -> Program | None:
        """The program or library that a function is in; None where none was looked into."""
        found = (program for program, (_, ids) in self._starts.items() if number in ids)
        return next(found, None)

    def ids(self, program: NDArray[np.int32] | int, func: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Return the number of each function, int32[n], by program and ``func`` as in the trace."""
        if not len(func):
            return np.empty(0, np.int32)
        if isinstance(program, int) and not program and int(func.max()) < DENSE:
            return self._dense(func)
        code = func.astype(np.uint64)
        if not isinstance(program, int) or program:
            code |= np.uint64(1 << 32) * np.asarray(program, np.uint64)
        at = self._find(code)
        missing = self._codes[at] != code
        if missing.any():
            self._learn(np.unique(code[missing]))
            at = self._find(code)
        return np.asarray(self._ids[at])

    def _dense(self, func: NDArray[np.uint32]) -> NDArray[np.int32]:
        """The numbers of functions of the first program, by a table of all of them."""
        more = int(func.max()) + 1 - len(self._table)
        if more > 0:
            self._table = np.pad(self._table, (0, more), constant_values=-1)
        found = self._table.take(func)
        if int(found.min()) < 0:
            self._learn(np.unique(func[found < 0]).astype(np.uint64))
            found = self._table.take(func)
        return found

    def _find(self, code: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Find each code among the known ones; for an unknown one the index is arbitrary."""
        return np.minimum(np.searchsorted(self._codes, code), len(self._codes) - 1)

    def _learn(self, codes: NDArray[np.uint64]) -> None:
        fresh = np.empty(len(codes), np.int32)
        owner = (codes >> np.uint64(32)).astype(np.int64)
        for number in np.unique(owner).tolist():
            rows = np.flatnonzero(owner == number)
            func = codes[rows].astype(np.uint32)
            for program, part in self.programs[number].parts(func):
                fresh[rows[part]] = self._functions(program, program.sites(func[part]))
        order = np.argsort(np.concatenate([self._codes, codes]), kind="stable")
        self._codes = np.concatenate([self._codes, codes])[order]
        self._ids = np.concatenate([self._ids, fresh])[order]
        small = self._codes[self._codes < DENSE]
        self._table = np.full(int(small[-1]) + 1 if len(small) else 0, -1, np.int32)
        self._table[small] = self._ids[: len(small)]

    def _functions(self, program: Program, site: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Return the functions around sites of one program, int32[n], numbering new ones."""
        names, starts, _ = program.lookup(site)
        begins, first, index = np.unique(starts, return_index=True, return_inverse=True)
        none = np.empty(0, np.uint64), np.empty(0, np.int32)
        known, ids = self._starts.get(program, none)
        new = ~np.isin(begins, known)
        shown = [names[i] for i in first[new].tolist()]
        self.name += shown
        self.symbol += [program.symbols.get(name, name) for name in shown]
        self.address += begins[new].tolist()
        places = program.lines.places(begins[new]) if program.lines else [""] * int(new.sum())
        self.source += places
        self.library += [program.name] * len(places)
        added = np.arange(len(self.name) - len(places), len(self.name), dtype=np.int32)
        every, numbers = np.concatenate([known, begins[new]]), np.concatenate([ids, added])
        order = np.argsort(every)
        self._starts[program] = every[order], numbers[order]
        return np.asarray(numbers[order][np.searchsorted(every[order], begins)][index])
