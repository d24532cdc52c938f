# SPDX-License-Identifier: MIT
"""A relocatable file's calls, records and symbols: all that an update does besides code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8
from ftpatch.core.changes import Changes
from ftpatch.elf.sections import Headers, Tail
from ftpatch.ftrace.added_symbols import name_callee
from ftpatch.ftrace.addr import Callee
from ftpatch.ftrace.relocatable_calls import link_calls
from ftpatch.ftrace.rewrite_table import rewrite_table
from ftpatch.ftrace.sites import Sites

__all__ = ["link"]


def link(
    sites: Sites,
    wanted: NDArray[np.bool_],
    old: U8,
    new: U8,
    callee: Callee | None,
    dropped: NDArray[np.bool_],
) -> tuple[Changes, bytes]:
    """Changes to everything but code, and what is laid behind the end of the file, for the sites
    in ``wanted``, bool[n], whose linked code goes from ``old`` to ``new``, uint8[n, k], while the
    records in ``dropped``, bool[n], are to be missing.

    Raises SiteRefused or InputError where the file has no place for it.
    """
    headers = Headers(sites.image.elf, Tail(sites.image.end))
    symbol, named = name_callee(sites, wanted, callee if wanted.any() else None, headers)
    calls = link_calls(sites, wanted, old, new, symbol, headers)
    records = rewrite_table(sites, dropped, headers)
    return Changes.concat([named, calls, records, headers.changes()]), bytes(headers.tail.data)
