# SPDX-License-Identifier: MIT
"""Rules on the table: each record for itself, and their order."""

from __future__ import annotations

import numpy as np

from ftpatch.arch.least_records import least_records
from ftpatch.core.columns import among
from ftpatch.elf.relocations import Form
from ftpatch.ftrace.check.findings import Broken, broken
from ftpatch.ftrace.sites import Sites

__all__ = ["outside", "repeated", "unaligned", "unfilled", "unmoved", "unsorted"]

LITERAL = 8
"""Bytes of the pointer that CALL_OPS has before each function."""
FEW = 500
"""A table with fewer than one descent in this many records was sorted once."""


def repeated(sites: Sites) -> Broken:
    """All but the first record of each site. A dropped record is none."""
    _, first = np.unique(sites.ip, return_index=True)
    again = np.ones(len(sites), bool)
    again[first] = False
    return broken(sites, again & ~sites.dropped, "duplicate record")


def outside(sites: Sites) -> Broken:
    """Sites that are not in executable text."""
    return broken(sites, sites.offset < 0, "the record is not in executable text")


def unfilled(sites: Sites) -> Broken:
    """Slots of a relocatable file's table that no relocation will fill; the address is the slot's
    place in the file. Where a loader wants no empty table, one without records has null slots."""
    empty = (sites.table.relocation < 0) & sites.image.is_relocatable
    least = least_records(sites.arch.name)
    if empty.all() and len(empty) <= least:
        empty &= sites.table.value != 0
    slots = sites.table.slot[empty]
    return slots, ["no relocation fills this slot of the table"] * len(slots)


def unmoved(sites: Sites) -> Broken:
    """Slots that an x86 kernel's decompressor moves although they are null, or does not move along
    with the kernel although they are records; the address is the slot's. Kernels that are built
    with null records skip what is out of their text."""
    table, moved = sites.table, sites.image.boot_relocations.place
    if not len(moved):
        return table.slot[:0], []
    listed, null = np.isin(table.slot, moved), among(table.value, sites.arch.skips)
    away = listed & null & (not among(sites.table_before.value, sites.arch.skips).any())
    stays = ~listed & ~null
    words = ("KASLR turns this null record into an ftrace bug", "KASLR does not move this record")
    rows = np.flatnonzero(away | stays)
    return table.slot[rows], [words[int(stays[row])] for row in rows.tolist()]


def unaligned(sites: Sites) -> Broken:
    """Sites at which no instruction can begin; with CALL_OPS, records at which no literal can be,
    of which ftrace_call_adjust makes no site at all."""
    align = sites.arch.align
    crooked = sites.ip % np.uint64(align) != 0
    ip, words = broken(sites, crooked, f"the site is not aligned to {align} bytes")
    if not sites.abi.nop_ops:
        return ip, words
    value = sites.table.value
    live = ~among(value, sites.arch.skips)
    lost = value[live & (value % np.uint64(LITERAL) != 0)]
    message = f"the record is not aligned to {LITERAL} bytes, as CALL_OPS requires"
    return np.append(ip, lost), [*words, *[message] * len(lost)]


def unsorted(sites: Sites) -> Broken:
    """The first record that is lower than the one before it.

    Tables that hold their values in place are sorted when the kernel is built; those that are
    filled by relocations are in link order, and the kernel sorts them, as it does every module's.
    """
    table = sites.table_before
    relocations = sites.original.relocations
    by_addend = (
        relocations.form[table.relocation[table.relocation >= 0]] == Form.RELA
        if len(relocations.form)
        else np.zeros(0, bool)
    )
    value = table.value[~np.isin(table.value, np.array(sites.arch.skips, np.uint64))]
    descents = np.flatnonzero(value[1:] < value[:-1])
    sorted_once = 0 < len(descents) <= max(2, len(value) // FEW)
    if not sites.image.is_kernel or by_addend.any() or not sorted_once:
        return value[:0], []
    message = (
        "the record is lower than the one before it; a kernel that relies on build-time "
        "sorting will not find functions by address"
    )
    return value[descents[:1] + 1], [message]
