# SPDX-License-Identifier: MIT
"""A relocatable file read once more after its update, before that is written.

In a linked file an update changes code and little else. In a relocatable one it changes tables that
other things count by, and lays sections anew; so what it would be is read like any other file, and
must differ from what it was in nothing but what was planned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.elf.headers import Section
from ftpatch.errors import InputError
from ftpatch.ftrace.plan import Plan
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import Image

__all__ = ["recheck"]


def recheck(sites: Sites, plan: Plan, data: NDArray[np.uint8]) -> None:
    """Compare what ``sites`` were planned to be with what ``data``, uint8[size], the whole file
    after the update, says that they are.

    Raises InputError where a site, a record, a relocation or a symbol would be another one: the
    file contradicts itself, or ftpatch does not know what it is.
    """
    image = sites.image.holding(data)
    after = read_sites(image)
    for what, same in (
        ("sites", _same_sites(sites, after, plan)),
        ("records", int(after.dropped.sum() - sites.dropped.sum()) == plan.dropped - plan.restored),
        ("relocations", _same_relocations(sites, after)),
        ("symbols", _same_symbols(sites.image, image, plan.undefined)),
    ):
        if not same:
            raise InputError(
                sites.image.path,
                f"after the update its {what} would differ from the plan",
                "nothing was written; please report this file",
            )


def _same_sites(sites: Sites, after: Sites, plan: Plan) -> bool:
    """Return whether the same sites are there, and their code is the planned one."""
    if not np.array_equal(sites.ip, after.ip):
        return False
    state, addr, _, _ = sites.arch.decode(plan.code, sites.ip, sites.abi)
    changed = (plan.code != sites.code).any(axis=1)
    state = np.where(changed, state, sites.state)
    addr = np.where(changed, addr, sites.addr)
    return np.array_equal(after.state, state) and np.array_equal(after.addr, addr)


def _same_relocations(sites: Sites, after: Sites) -> bool:
    """Return whether the others are the same, and none has got a symbol where it had none. Of
    sections that the update adds, it has chosen the relocations itself."""
    count = len(sites.image.elf.sections)
    before = _others(sites, count)
    had, has = (before[:, 2] < len(each.image.symbols) for each in (sites, after))
    return np.array_equal(before, _others(after, count)) and np.array_equal(had, has)


def _others(sites: Sites, count: int) -> NDArray[np.uint64]:
    """The relocations of the first ``count`` sections, but those of sites and of the table, by
    place, uint64[n, 4]."""
    relocations = sites.image.relocations
    at_site = np.isin(relocations.place, sites.ip + np.uint64(sites.arch.call_field))
    at_site &= among(relocations.type, (*sites.arch.calls, sites.arch.neutral))
    at_site[sites.table.relocation[sites.table.relocation >= 0]] = True
    for added in sites.image.elf.sections[count:]:
        if added.flags & Section.SHF_ALLOC:
            at_site |= relocations.place - np.uint64(added.address) < np.uint64(added.size)
    rows = np.flatnonzero(~at_site)
    columns = np.stack(
        [
            relocations.place[rows],
            relocations.type[rows].astype(np.uint64),
            relocations.symbol[rows].astype(np.uint64),
            relocations.addend[rows].view(np.uint64),
        ],
        axis=1,
    )
    return columns[np.lexsort(columns.T[::-1])]


def _same_symbols(image: Image, after: Image, undefined: str) -> bool:
    """Return whether every symbol has the name that it had, and an ``undefined`` one has that
    name."""
    before, now = image.symbols, after.symbols
    count = len(before)
    size = len(before.strings)
    return bool(
        len(now) >= count
        and np.array_equal(now.name[:count], before.name)
        and np.array_equal(now.type[:count], before.type)
        and np.array_equal(now.strings[:size], before.strings)
        and (not undefined or len(now.rows_named(undefined)))
    )
