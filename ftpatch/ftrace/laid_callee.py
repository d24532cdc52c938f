# SPDX-License-Identifier: MIT
"""A callee of a relocatable file's own: code that is laid into it, in sections that it gets.

No kernel exports ftrace_caller. What a module brings itself, its loader makes reachable:

    .text            call ..       | R_X86_64_PLT32, callee | -4 |
    .text.ftpatch    callee: ...   | R_X86_64_PC32, .text   | .. |    code, and what it refers to
    .data.ftpatch    what the code writes

The sections are appended with their relocations; nothing that was in the file moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.headers import Section
from ftpatch.elf.relocatable import LAID, LAID_CODE, LAID_DATA, STEP, externals
from ftpatch.elf.sections import Headers
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError, SiteRefused
from ftpatch.ftrace.added_symbols import Added, add_symbols
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image

__all__ = ["DATA", "Entry", "LaidCallee", "Reference", "lay_callee", "place_of_code"]

RELOCATIONS = f".rela{LAID_CODE}"
DATA = -1
"""Stands for the symbol of the data that is laid in."""
SPARE = 256
"""Undefined symbols that later commands may add."""
LINE = 64
"""Bytes of a cache line: of the data's own."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A function of the code: its name, and its place and size in it (bytes)."""

    name: str
    at: int
    size: int


@dataclass(frozen=True, slots=True)
class Reference:
    """Four bytes of the code, at ``at``, that a loader fills with S + A - P: ``symbol`` is a row of
    the symbol table, or DATA."""

    at: int
    symbol: int
    addend: int


@dataclass(frozen=True, kw_only=True)
class LaidCallee:
    """Code to lay into a file, to be aligned to ``align`` bytes at the address ``start``, which
    place_of_code() gives; the ``data`` that it writes, empty for none, whose symbol has the name
    ``named``; its ``entries`` and ``references``, the latter of the relocation type ``type``; and
    the number of the entry that each site is to call, intp[n]."""

    code: bytes
    align: int
    start: int
    entries: tuple[Entry, ...]
    called: NDArray[np.intp]
    data: bytes = b""
    named: str = ""
    references: tuple[Reference, ...] = ()
    type: int = 0

    @property
    def addr(self) -> NDArray[np.uint64]:
        """Address that each site is to call, uint64[n]."""
        at = np.array([entry.at for entry in self.entries], np.uint64)
        return np.uint64(self.start) + at[self.called]


def place_of_code(image: Image, align: int) -> int:
    """Address (and file offset) of code that is laid into a file: behind everything, and beyond the
    addresses of undefined symbols."""
    least = externals(image.elf) + STEP * (len(image.symbols) + SPARE)
    return -(-max(image.end, least) // align) * align


def lay_callee(sites: Sites, laid: LaidCallee, headers: Headers) -> NDArray[np.int64]:
    """Lay the code in, first of all that is appended; return the row of the symbol that each site
    is to call, int64[n].

    Raises InputError where the file has no table for its sections' names or symbols; SiteRefused
    where it has such sections already.
    """
    elf = sites.image.elf
    for name in LAID:
        if elf.section(name) is not None:
            raise SiteRefused(elf.path, f"already has a section {name}", "run `ftpatch undo` first")
    tail = headers.tail
    tail.data += bytes(laid.start - tail.start - len(tail.data))
    flags = Section.SHF_ALLOC | Section.SHF_EXECINSTR
    code = headers.append(0, Section.SHT_PROGBITS, laid.code, laid.align, flags=flags)
    names = headers.names(LAID_CODE, LAID_DATA, RELOCATIONS)
    if not names:
        raise InputError(elf.path, "no complete table of section names")
    headers.rows["name"][code] = names[0]
    first = len(sites.image.symbols)
    added = [
        Added(name=e.name, type=Symbols.STT_FUNC, section=code, value=e.at, size=e.size)
        for e in laid.entries
    ]
    if laid.data:
        flags = Section.SHF_ALLOC | Section.SHF_WRITE
        data = headers.append(names[1], Section.SHT_PROGBITS, laid.data, LINE, flags=flags)
        kind = Symbols.STT_OBJECT
        added.append(Added(name=laid.named, type=kind, section=data, size=len(laid.data)))
    if laid.references:
        _relocate(laid, headers, names[2], code, first + len(laid.entries))
    add_symbols(headers, added)
    return first + laid.called.astype(np.int64)


def _relocate(laid: LaidCallee, headers: Headers, name: int, code: int, data: int) -> None:
    """Add the relocations of the code, which is section ``code``; symbol ``data`` is the data's."""
    table = next(s for s in headers.elf.sections if s.type == Section.SHT_SYMTAB)
    rows, order = b"", headers.elf.order
    for one in laid.references:
        symbol = data if one.symbol == DATA else one.symbol
        fields = one.at, symbol << 32 | laid.type, one.addend % (1 << 64)
        rows += b"".join(order.packed(field, 8) for field in fields)
    headers.append(
        name,
        Section.SHT_RELA,
        rows,
        flags=Section.SHF_INFO_LINK,
        link=table.index,
        info=code,
        entsize=24,
    )
