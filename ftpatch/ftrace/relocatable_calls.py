# SPDX-License-Identifier: MIT
"""Calls of a relocatable file: what its loader fills in.

    call __fentry__     e8 00 00 00 00    | ip + 1 | R_X86_64_PLT32, __fentry__ | -4 |
    nop                 0f 1f 44 00 00    | ip + 1 | R_X86_64_NONE, 0           | -4 |
    call another        e8 00 00 00 00    | ip + 1 | R_X86_64_PLT32, another    | -4 |

A pad has no relocation: where it becomes a call, an entry is added to those of its section. A
callee that the file does not refer to yet becomes an undefined symbol behind the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.arch.contract import U8
from ftpatch.core.changes import Changes, Kind
from ftpatch.elf.headers import Section
from ftpatch.elf.relocations import Form
from ftpatch.elf.sections import Headers
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError
from ftpatch.ftrace.sites import Sites

__all__ = ["link_calls"]

NO_SYMBOL = 0xFFFFFF
"""A row beyond every symbol table (ELF32 has 24 bits for it)."""


def link_calls(
    sites: Sites,
    wanted: NDArray[np.bool_],
    old: U8,
    new: U8,
    symbol: NDArray[np.int64],
    headers: Headers,
) -> Changes:
    """Changes to the relocations of the sites in ``wanted``, bool[n], whose linked code goes from
    ``old`` to ``new``, uint8[n, k]. New calls go to the rows ``symbol``, int64[n], of the symbol
    table. Added entries go to ``headers``."""
    arch, relocations = sites.arch, sites.image.relocations
    ip = sites.ip[wanted]
    place = ip + np.uint64(arch.call_field)
    was, addr = arch.decode(old[wanted], ip, sites.abi)[:2]
    call = arch.decode(new[wanted], ip, sites.abi)[0] == State.CALL
    row = relocations.at(place, (*arch.calls, arch.neutral))
    there = row >= 0
    site = np.flatnonzero(wanted)
    changes = _changed(
        sites,
        site[there],
        row[there],
        was[there],
        addr[there],
        call[there],
        symbol=symbol[site[there]],
    )
    new_ones = call & ~there
    if new_ones.any():
        _add_entries(sites, place[new_ones], symbol[site[new_ones]], headers, changes)
    return changes


def _changed(
    sites: Sites,
    site: NDArray[np.intp],
    at: NDArray[np.int64],
    was: U8,
    addr: NDArray[np.uint64],
    call: NDArray[np.bool_],
    *,
    symbol: NDArray[np.int64],
) -> Changes:
    """Changes to the relocations in rows ``at``, one for each site in ``site``: they must be in
    state ``was`` and call ``addr``, and those in ``call`` will call ``symbol``, int64[m]."""
    arch, relocations = sites.arch, sites.image.relocations
    if not len(at):
        return Changes.concat([])
    # A callee can be named in several ways, such as a section and an addend: expect the present
    # one if it resolves to the expected callee.
    expected = np.where(was == State.CALL, addr, np.uint64(0))
    same = (sites.state[site] == was) & (sites.addr[site] == expected)
    before = _words(
        sites,
        np.where(same, relocations.type[at], arch.calls[0]),
        np.where(same, relocations.symbol[at], _named(sites.image.symbols, addr)),
        np.where(same, relocations.addend[at], arch.call_addend),
    )
    first = sites.original.relocations
    origin = first.at(sites.ip[site] + np.uint64(arch.call_field), arch.calls)
    known = origin >= 0
    again = known & (first.symbol[origin] == symbol) if len(first.symbol) else known
    kind = np.where(known, first.type[origin], arch.calls[0]) if known.any() else arch.calls[0]
    addend = (
        np.where(again, first.addend[origin], arch.call_addend) if again.any() else arch.call_addend
    )
    after = _words(
        sites,
        np.where(call, kind, arch.neutral),
        np.where(call, symbol, 0),
        np.where(call, addend, relocations.addend[at]),
    )
    entry = relocations.entry[at] + sites.image.elf.word  # r_offset stays
    return Changes.of(Kind.RELOCATION, entry, before, after, sites.ip[site])


def _add_entries(
    sites: Sites,
    place: NDArray[np.uint64],
    symbol: NDArray[np.int64],
    headers: Headers,
    changes: Changes,
) -> None:
    """Add relocations of calls of ``symbol``, int64[m], at new places after those of each section.
    The whole table is appended anew, with the ``changes`` to it."""
    arch, elf = sites.arch, sites.image.elf
    kinds, late = (Section.SHT_REL, Section.SHT_RELA), Section.SHF_RELA_LIVEPATCH
    # Livepatch relocations are applied only when the object to be patched is loaded.
    tables = [s for s in elf.sections if s.type in kinds and not s.flags & late]
    for target in elf.sections:
        wanted = Section.SHF_ALLOC | Section.SHF_EXECINSTR
        if target.flags & wanted != wanted:
            continue
        offset = place - np.uint64(target.address)
        own = offset < target.size
        offset, count = offset[own], int(own.sum())
        if not count:
            continue
        rest = _words(
            sites,
            np.full(count, arch.calls[0]),
            symbol[own],
            np.full(count, arch.call_addend),
        )
        head = elf.order.rows(offset, elf.word)
        added = np.concatenate([head, rest], axis=1).tobytes()
        table = next((s for s in tables if s.info == target.index), None)
        if table is not None:
            held = _with(headers.contents(table), table.offset, changes)
            whole = len(held) // (len(added) // count) * (len(added) // count)
            headers.move(table.index, held[:whole] + added)
        elif tables:
            headers.add(tables[0], added, target.index)
        else:
            raise InputError(elf.path, "no relocations")


def _with(held: bytes, start: int, changes: Changes) -> bytes:
    """Contents of the section at file offset ``start`` after the Changes to it."""
    end = start + len(held)
    inside = (changes.offset >= start) & (changes.offset + changes.width <= end)
    data = np.frombuffer(held, np.uint8).copy()
    changes.take(inside).put(data, base=start)
    return data.tobytes()


def _words(
    sites: Sites,
    kind: NDArray[np.integer],
    symbol: NDArray[np.integer],
    addend: NDArray[np.int64],
) -> U8:
    """r_info, and r_addend if the file uses RELA, as bytes, uint8[n, k]."""
    word = sites.image.elf.word
    shift = np.uint64(32 if word == 8 else 8)
    info = symbol.astype(np.uint64) << shift | kind.astype(np.uint64)
    columns = [info]
    if _form(sites) == Form.RELA:
        columns.append(addend.astype(np.int64).view(np.uint64))
    rows = sites.image.elf.order.rows(np.stack(columns, axis=1).reshape(-1), word)
    return rows.reshape(len(kind), -1)


def _form(sites: Sites) -> int:
    """REL or RELA, whichever the ABI of the machine uses."""
    form = sites.image.relocations.form
    return int(form[0]) if len(form) else Form.RELA


def _named(symbols: Symbols, addr: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A row of the symbols at each address, int64[n]; NO_SYMBOL if there is none."""
    order = np.argsort(symbols.value, kind="stable")
    if not len(order):
        return np.full(len(addr), NO_SYMBOL, np.int64)
    at = np.minimum(np.searchsorted(symbols.value[order], addr), len(order) - 1)
    return np.where(symbols.value[order][at] == addr, order[at], NO_SYMBOL)
