# SPDX-License-Identifier: MIT
"""The table of a relocatable file, rewritten without dropped records.

A loader takes the number of records from the size of the section, and no value is null to every
kernel. So a dropped record leaves no trace: the last ones move into the holes, and table and
relocations end earlier.

    slot    0  1  2  3  4  5          0  1  2  3
    record  a  b  c  d  e  f    ->    a  f  c  d          b and e are dropped
                                        ^ from 5         sh_size: 4 words, 4 relocations

Where a loader wants no empty table, a slot without a relocation stays, which is null.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.arch.least_records import least_records
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.headers import Section
from ftpatch.elf.relocations import Form
from ftpatch.elf.sections import Headers
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites

__all__ = ["rewrite_table"]


def rewrite_table(sites: Sites, dropped: NDArray[np.bool_], headers: Headers) -> Changes:
    """Changes that remove exactly the records of the sites in ``dropped``, bool[n], from the
    original table; the sizes of the sections go into ``headers``.

    Raises SiteRefused for a table whose relocations are not one for each record.
    """
    before, after = (_missing(sites, mask) for mask in (sites.dropped, dropped))
    if np.array_equal(before, after):
        return Changes.concat([])
    table = sites.image.elf.section(sites.table_name)
    entries = _entries_section(sites, table)
    if table is None or entries is None:
        raise SiteRefused(
            sites.image.path,
            f"{sites.table_name} does not have one relocation per record",
            "--keep-records leaves the table alone",
        )
    old, new = (_table(sites, missing) for missing in (before, after))
    count = int((~after).sum())
    least = min(least_records(sites.arch.name), len(after))
    headers.resize(table.index, max(count, least) * sites.image.elf.word)
    headers.resize(entries.index, count * old[1].shape[1])
    parts = []
    for kind, start, was, becomes in (
        (Kind.RECORD, table.offset, old[0], new[0]),
        (Kind.RELOCATION, entries.offset, old[1], new[1]),
    ):
        place = start + np.arange(len(was), dtype=np.int64) * was.shape[1]
        parts.append(Changes.of(kind, place, was, becomes, NO_OWNER).effective())
    return Changes.concat(parts)


def _missing(sites: Sites, dropped: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Slots of the original table whose record is removed, bool[m]."""
    missing = np.zeros(len(sites.table_before.slot), bool)
    missing[sites.row[dropped]] = True
    return missing


def _entries_section(sites: Sites, table: Section | None) -> Section | None:
    """The section with the relocations of the table; None unless it has exactly one for each
    original slot, in order."""
    original = sites.original.relocations
    row = sites.table_before.relocation
    own = [s for s in sites.image.elf.sections if table is not None and s.info == table.index]
    own = [s for s in own if s.type in (Section.SHT_REL, Section.SHT_RELA)]
    if len(own) != 1 or (row < 0).any() or not len(row):
        return None
    size = (2 if original.form[row[0]] == Form.REL else 3) * sites.image.elf.word
    place = own[0].offset + np.arange(len(row), dtype=np.int64) * size
    if not np.array_equal(original.entry[row], place):
        return None
    held = next(s for s in sites.original.elf.sections if s.index == own[0].index)
    return own[0] if held.size == len(row) * size else None


def _table(sites: Sites, missing: NDArray[np.bool_]) -> tuple[U8, U8]:
    """Slots, uint8[m, word], and relocations, uint8[m, entry], with the last records moved into
    the holes. Beyond the new end both stay as they were."""
    original, word = sites.original.relocations, sites.image.elf.word
    order = sites.image.elf.order
    row = sites.table_before.relocation
    count = int((~missing).sum())
    source = np.arange(len(missing))
    holes = np.flatnonzero(missing[:count])
    movers = np.flatnonzero(~missing[count:]) + count
    source[holes] = movers
    slots = order.rows(sites.table_before.raw[source], word)
    shift = np.uint64(32 if word == 8 else 8)
    columns = [
        (sites.table_before.slot - sites.table_before.slot[0]),
        original.symbol[row[source]].astype(np.uint64) << shift | original.type[row[source]],
    ]
    if original.form[row[0]] == Form.RELA:
        columns.append(original.addend[row[source]].view(np.uint64))
    entries = order.rows(np.stack(columns, axis=1).reshape(-1), word)
    return slots, entries.reshape(len(row), -1)
