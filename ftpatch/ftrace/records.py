# SPDX-License-Identifier: MIT
"""Changes that accompany a site's code: its record, and the literal of CALL_OPS.

ftrace_init compares what stands at every record. A site that it would refuse must lose its record:

    record in place       | ip |             ->  | drop value |
    by a RELA relocation  | 0 | + entry      ->  | drop value |, the entry's type becomes NONE
    by a RELR bit         | ip |, bit 1      ->  | drop value |, bit 0

A site with CALL_OPS that is to call needs its ops pointer before ftrace_caller follows it:

    literal               nop, nop           ->  &ftrace_nop_ops
    its relocation        the record's entry (which is free now), or one of type NONE
                                             ->  | &literal | RELATIVE | &ftrace_nop_ops |

All of it goes back when the site's code goes back to what ftrace_init expects.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.journal import journalled
from ftpatch.elf.relocations import Form, Relocations
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites

__all__ = ["follow", "literals_fit", "restore"]

U8 = NDArray[np.uint8]


def restore(sites: Sites, mask: NDArray[np.bool_]) -> Changes:
    """Restore the records, relocations and literals of the sites in ``mask`` from the journal."""
    if not sites.blocks:
        return Changes.concat([])
    owners = sites.ip[mask]
    before = sites.original.relocations
    bitmaps = before.entry[before.form == Form.RELR]
    kinds = (Kind.RECORD, Kind.RELOCATION, Kind.LITERAL)
    touched = Changes.concat(journalled(sites.blocks, kind) for kind in kinds)
    touched = touched.take(np.isin(touched.owner, owners) & ~np.isin(touched.offset, bitmaps))
    # Several commands may have changed a place: it goes from the last state to the first.
    _, first = np.unique(touched.offset, return_index=True)
    touched = touched.take(first)
    left, original = (touched.held(of.data) for of in (sites.left, sites.original))
    changes = replace(touched, old=left, new=original)
    row = sites.table_before.relocation[sites.row[mask & sites.dropped]]
    row = row[row >= 0]
    row = row[(before.form[row] == Form.RELR) & (before.bit[row] > 0)]
    bits = _bits(sites, before, row, set_them=True)
    return Changes.concat([changes, bits]).effective()


def follow(sites: Sites, mask: NDArray[np.bool_], calls: NDArray[np.bool_]) -> Changes:
    """Drop the records of the sites in ``mask``, bool[n], unless they are dropped already, and set
    the literals of those in ``calls``, bool[n].

    Raises SiteRefused where this kernel skips no value, or where no relocation entry is free.
    """
    fresh = mask & ~sites.dropped
    parts = []
    if fresh.any():
        parts += _drop(sites, fresh, taken=calls)
    if sites.abi.nop_ops and calls.any():
        parts += _literals(sites, calls, fresh)
    return Changes.concat(parts).effective()


def _drop(sites: Sites, fresh: NDArray[np.bool_], taken: NDArray[np.bool_]) -> list[Changes]:
    value = sites.arch.drop(sites.abi)
    if value is None:
        raise SiteRefused(
            sites.image.path,
            "this kernel has no null record, and with CALL_OPS its ftrace_call_adjust reads code "
            "at every other value: records cannot be dropped",
            "--keep-records leaves the table alone, and `ftpatch check` predicts the result",
        )
    table, rows = sites.table, sites.row[fresh]
    word, owner, order = sites.image.elf.word, sites.ip[fresh], sites.image.elf.order
    old = order.rows(table.raw[rows], word)
    new = order.rows(np.full(len(rows), value, np.uint64), word)
    parts = [Changes.of(Kind.RECORD, table.offset[rows], old, new, owner)]
    relocations = sites.image.relocations
    at = table.relocation[rows]
    form = relocations.form[at] if len(relocations.form) else np.zeros(len(at), np.uint8)
    form = np.where(at >= 0, form, Form.NONE)
    # REL and RELA: r_info is the second word. A literal reuses a whole RELA entry.
    literal = taken[fresh] & bool(sites.abi.nop_ops)
    info = np.isin(form, [Form.REL, Form.RELA]) & ~(literal & (form == Form.RELA))
    if info.any():
        entry = relocations.entry[at[info]] + word
        was = order.rows(np.full(len(entry), sites.arch.relative), word)
        parts.append(Changes.of(Kind.RELOCATION, entry, was, np.zeros_like(was), owner[info]))
    relr = at[form == Form.RELR]
    if len(relr):
        # The address word of a run cannot lose its relocation. Null plus the kernel's displacement
        # is not in its text, which a kernel that has null records skips as well.
        if not sites.abi.null_seen and (relocations.bit[relr] == 0).any():
            raise SiteRefused(
                sites.image.path,
                "a record is the address word of a RELR run and cannot be cleared",
                "--keep-records leaves the table alone",
            )
        row = relr[relocations.bit[relr] > 0]
        parts.append(_bits(sites, relocations, row, set_them=False))
    return parts


def _bits(
    sites: Sites, relocations: Relocations, row: NDArray[np.int64], *, set_them: bool
) -> Changes:
    """Changes to RELR bitmaps: one for each word, which many records may share."""
    word, order = sites.image.elf.word, sites.image.elf.order
    entry, inverse = np.unique(relocations.entry[row], return_inverse=True)
    bits = np.zeros(len(entry), np.uint64)
    np.bitwise_or.at(bits, inverse, np.uint64(1) << relocations.bit[row].astype(np.uint64))
    held, _ = sites.left.elf.gather(entry, word)
    now = order.unsigned(held, word)
    new = now | bits if set_them else now & ~bits
    return Changes.of(Kind.RELOCATION, entry, held, order.rows(new, word), NO_OWNER)


def _literals(sites: Sites, calls: NDArray[np.bool_], dropping: NDArray[np.bool_]) -> list[Changes]:
    """The ops pointer of each site: eight bytes, aligned, 12 or 16 before the branch."""
    relocations, abi, order = sites.image.relocations, sites.abi, sites.image.elf.order
    owner = sites.ip[calls]
    literal = sites.arch.literal(owner)
    offset = sites.image.elf.offset_of(literal, executable=True)
    held, _ = sites.image.elf.gather(offset, 8)
    there = relocations.at(literal, (sites.arch.relative,)) >= 0
    if not len(relocations.place):
        there = order.unsigned(held, 8) == abi.nop_ops
    fresh = np.flatnonzero(~there)
    if not len(fresh):
        return []
    offset, literal, owner = offset[fresh], literal[fresh], owner[fresh]
    nops = sites.arch.compiled(literal, held[fresh], np.full(len(fresh), 8, np.uint8), abi)
    ops = np.full(len(fresh), abi.nop_ops, np.uint64)
    parts = [Changes.of(Kind.LITERAL, offset, nops, order.rows(ops, 8), owner)]
    if not len(relocations.place):  # a kernel that is not relocated
        return parts
    new = np.stack([literal, np.full_like(ops, sites.arch.relative), ops], axis=1)
    entry, old = _entries(sites, sites.row[calls][fresh], dropping[calls][fresh])
    packed = order.rows(new.reshape(-1), 8).reshape(-1, 24)
    parts.append(Changes.of(Kind.RELOCATION, entry, old, packed, owner))
    return parts


def _entries(
    sites: Sites, row: NDArray[np.intp], dropping: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], U8]:
    """A RELA entry for each literal, and its contents: the entry of the record that is dropped
    along with it, else one of type NONE."""
    relocations, table = sites.image.relocations, sites.table
    at = table.relocation[row]
    own = _own_entry(sites, row, dropping)
    entry = np.zeros(len(row), np.int64)
    old = np.zeros((len(row), 3), np.uint64)
    entry[own] = relocations.entry[at[own]]
    old[own, 0] = table.slot[row[own]]
    old[own, 1] = sites.arch.relative
    old[own, 2] = table.value[row[own]]
    free = _free_entries(sites)
    wanted = np.flatnonzero(~own)
    if len(wanted) > len(free):
        raise SiteRefused(
            sites.image.path,
            f"{len(wanted)} literals need a relocation, and .rela.dyn has {len(free)} free entries",
            "select fewer functions with -f",
        )
    free = free[: len(wanted)]
    entry[wanted] = relocations.entry[free]
    old[wanted, 0] = relocations.place[free]
    old[wanted, 1] = relocations.symbol[free].astype(np.uint64) << np.uint64(32)
    old[wanted, 2] = relocations.addend[free].view(np.uint64)
    return entry, sites.image.elf.order.rows(old.reshape(-1), 8).reshape(-1, 24)


def _own_entry(
    sites: Sites, row: NDArray[np.intp], dropping: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Test which sites' records free a RELA entry."""
    at = sites.table.relocation[row]
    own = dropping & (at >= 0)
    own[own] = sites.image.relocations.form[at[own]] == Form.RELA
    return own


def _free_entries(sites: Sites) -> NDArray[np.intp]:
    """Rows of RELA relocations of type NONE (R_AARCH64_NONE is 0). One that belonged to a dropped
    record may be wanted back."""
    relocations = sites.image.relocations
    none = (relocations.form == Form.RELA) & (relocations.type == 0)
    ours = journalled(sites.blocks, Kind.RELOCATION).offset
    return np.flatnonzero(none & ~np.isin(relocations.entry + 8, ours))


def literals_fit(sites: Sites, calls: NDArray[np.bool_], dropping: NDArray[np.bool_]) -> bool:
    """Return whether there are relocation entries for the literals of the sites in ``calls``,
    bool[n], of which those in ``dropping`` free the entry of their record. A kernel without
    relocations needs none."""
    if not len(sites.image.relocations.place):
        return True
    held = sites.image.relocations.at(sites.arch.literal(sites.ip[calls]), (sites.arch.relative,))
    dropping = (dropping & ~sites.dropped)[calls][held < 0]
    own = _own_entry(sites, sites.row[calls][held < 0], dropping)
    return int((~own).sum()) <= len(_free_entries(sites))
