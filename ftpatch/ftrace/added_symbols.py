# SPDX-License-Identifier: MIT
"""Symbols that a relocatable file refers to only because ftpatch wrote calls of them.

A loader resolves every undefined symbol, called or not, so one that no site calls any more must
not stay undefined:

    st_shndx    SHN_UNDEF     the callee of a site; another file defines it
                SHN_ABS       not called any more: nothing to resolve

What is laid into the file itself has defined symbols, which stay.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section
from ftpatch.elf.sections import Headers
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.site_code import call_rows
from ftpatch.ftrace.sites import Sites

__all__ = ["Added", "add_symbols", "name_callee"]

STB_GLOBAL = 1
SIZE = {8: 24, 4: 16}
"""Bytes of a symbol."""
WIDE = 8
"""Bytes of an address in ELFCLASS64."""
ST_SHNDX = {8: 6, 4: 14}
"""Bytes from a symbol to its st_shndx, two bytes."""


@dataclass(frozen=True, kw_only=True)
class Added:
    """A global symbol to add: its type (STT_*), the index of its section (0: another file defines
    it), its place there and its size in bytes."""

    name: str
    type: int = 0
    section: int = 0
    value: int = 0
    size: int = 0


def add_symbols(headers: Headers, added: Sequence[Added], held: bytes | None = None) -> None:
    """Add symbols behind all others, which are in ``held`` if they have changed. Raises InputError
    where there is no symbol table, or none of their names."""
    elf = headers.elf
    table = _table(headers)
    strings = elf.sections[table.link]
    names = headers.contents(strings)
    if strings.type != Section.SHT_STRTAB or not names or names[-1]:
        raise InputError(elf.path, f"{strings.name} is not a string table")
    rows = headers.contents(table) if held is None else held
    for one in added:
        rows += _row(len(names), one, elf)
        names += one.name.encode() + b"\0"
    headers.move(strings.index, names)
    headers.move(table.index, rows)


def name_callee(
    sites: Sites, wanted: NDArray[np.bool_], callee: Callee | None, headers: Headers
) -> tuple[int, Changes]:
    """Row of the symbol that the sites in ``wanted``, bool[n], are to call, 0 for none; and Changes
    to the rows that ftpatch added before. A new row is laid with the whole table into ``headers``.

    Raises InputError where there is no symbol table.
    """
    symbols, elf = sites.image.symbols, sites.image.elf
    first = len(sites.original.symbols)
    if (callee is None or callee.row >= 0) and len(symbols) == first:
        return (0 if callee is None else callee.row), Changes.concat([])
    table = _table(headers)
    still = (sites.state == State.CALL) & ~wanted
    rows = call_rows(sites.image, sites.arch, sites.ip[still])
    called = set(sites.image.relocations.symbol[rows[rows >= 0]].tolist())
    if callee is not None:
        called.add(callee.row)
    imported = np.isin(symbols.section[first:], (Symbols.EXTERNAL, Symbols.SHN_ABS))
    added = first + np.flatnonzero(imported)
    place = added * SIZE[elf.word] + ST_SHNDX[elf.word]
    used = np.isin(added, sorted(called))
    old, new = (
        elf.order.rows(np.where(undefined, Symbols.SHN_UNDEF, Symbols.SHN_ABS), 2)
        for undefined in (symbols.section[added] == Symbols.EXTERNAL, used)
    )
    if callee is None or callee.row >= 0:
        row = 0 if callee is None else callee.row
        return row, Changes.of(Kind.HEADER, table.offset + place, old, new, NO_OWNER).effective()
    held = np.frombuffer(headers.contents(table), np.uint8).copy()
    held[place[:, None] + np.arange(2)] = new
    add_symbols(headers, [Added(name=callee.name)], held.tobytes())
    return len(symbols), Changes.concat([])


def _table(headers: Headers) -> Section:
    elf = headers.elf
    table = next((s for s in elf.sections if s.type == Section.SHT_SYMTAB), None)
    if table is None or table.link >= len(elf.sections) or table.size % SIZE[elf.word]:
        raise InputError(elf.path, "no complete symbol table to add the callee to")
    return table


def _row(name: int, added: Added, elf: Elf) -> bytes:
    """A global symbol (System V ABI, chapter 4, "Symbol Table")."""
    info = STB_GLOBAL << 4 | added.type
    numbers = name, info, 0, added.section, added.value, added.size
    order, sizes = ">" if elf.order.big else "<", "IBBHQQ"
    if elf.word != WIDE:
        numbers = name, added.value, added.size, info, 0, added.section
        sizes = "IIIBBH"
    return struct.pack(order + sizes, *numbers)
