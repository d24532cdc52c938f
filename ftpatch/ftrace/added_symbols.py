# SPDX-License-Identifier: MIT
"""Symbols that a relocatable file refers to only because ftpatch wrote calls of them.

A loader resolves every undefined symbol, called or not, so one that no site calls any more must
not stay undefined:

    st_shndx    SHN_UNDEF     the callee of a site; another file defines it
                SHN_ABS       not called any more: nothing to resolve
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.headers import Section
from ftpatch.elf.sections import Headers
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.site_code import call_rows
from ftpatch.ftrace.sites import Sites

__all__ = ["name_callee"]

STB_GLOBAL = 1
ST_SHNDX = {8: 6, 4: 14}
"""Bytes from a symbol to its st_shndx, two bytes."""


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
    size = 24 if elf.word == 8 else 16
    table = next((s for s in elf.sections if s.type == Section.SHT_SYMTAB), None)
    if table is None or table.link >= len(elf.sections) or table.size % size:
        raise InputError(elf.path, "no complete symbol table to add the callee to")
    still = (sites.state == State.CALL) & ~wanted
    rows = call_rows(sites.image, sites.arch, sites.ip[still])
    called = set(sites.image.relocations.symbol[rows[rows >= 0]].tolist())
    if callee is not None:
        called.add(callee.row)
    added = np.arange(first, len(symbols))
    place = added * size + ST_SHNDX[elf.word]
    used = np.isin(added, sorted(called))
    old, new = (
        np.where(undefined, Symbols.SHN_UNDEF, Symbols.SHN_ABS).astype("<u2")
        for undefined in (symbols.section[added] == Symbols.EXTERNAL, used)
    )
    if callee is None or callee.row >= 0:
        row = 0 if callee is None else callee.row
        was, becomes = (column.view(np.uint8).reshape(-1, 2) for column in (old, new))
        return row, Changes.of(
            Kind.HEADER, table.offset + place, was, becomes, NO_OWNER
        ).effective()
    held = np.frombuffer(headers.contents(table), np.uint8).copy()
    for at, value in zip(place.tolist(), new.tolist(), strict=True):
        held[at : at + 2] = (value & 0xFF, value >> 8)
    strings = elf.sections[table.link]
    names = headers.contents(strings)
    if strings.type != Section.SHT_STRTAB or not names or names[-1]:
        raise InputError(elf.path, f"{strings.name} is not a string table")
    headers.move(strings.index, names + callee.name.encode() + b"\0")
    headers.move(table.index, held.tobytes() + _row(len(names), elf.word))
    return len(symbols), Changes.concat([])


def _row(name: int, word: int) -> bytes:
    """An undefined global symbol (System V ABI, chapter 4, "Symbol Table")."""
    st_name, st_info = name.to_bytes(4, "little"), bytes([STB_GLOBAL << 4])
    if word == 8:  # name, info, other, shndx, value, size
        return st_name + st_info + bytes(19)
    return st_name + bytes(8) + st_info + bytes(3)  # name, value, size, info, other, shndx
