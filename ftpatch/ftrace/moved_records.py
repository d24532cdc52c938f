# SPDX-License-Identifier: MIT
"""A dropped record's entry among the relocations that an x86 kernel's decompressor applies.

A null record that is moved along with the kernel (KASLR) becomes the distance, and an ftrace bug.
Its entry goes; the first of the list takes its place, since nothing may be missing in the middle:

    | 0 | a | b | c | d | 0 | ...    ->    | 0 | 0 | b | a | d | 0 | ...         c is dropped
          ^ first                                    ^ first

The order is of no matter, and the end of the list must stay where it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites

__all__ = ["move_records"]


def move_records(sites: Sites, dropped: NDArray[np.bool_]) -> Changes:
    """Changes that leave the entries of all records but those of the sites in ``dropped``, bool[n].
    Raises SiteRefused for an entry that is not in the first list."""
    before = sites.original.boot_relocations
    if not len(before.entry):
        return Changes.concat([])
    gone = np.isin(before.place, sites.table_before.slot[sites.row[dropped]])
    if (gone & (before.list > 0)).any():
        raise SiteRefused(
            sites.image.path,
            "a record is not in the list of relocations that its kernel keeps for addresses",
            "--keep-records leaves the table alone",
        )
    first = before.list == 0
    entry, gone = before.entry[first], gone[first]
    held, _ = sites.original.elf.gather(entry, 4)
    count = int(gone.sum())
    holes = np.flatnonzero(gone[count:]) + count
    new = held.copy()
    new[holes] = held[np.flatnonzero(~gone[:count])]
    new[:count] = 0
    old, _ = sites.left.elf.gather(entry, 4)
    return Changes.of(Kind.RELOCATION, entry, old, new, NO_OWNER).effective()
