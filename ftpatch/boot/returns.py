# SPDX-License-Identifier: MIT
"""Returns of functions to their callers.

A return address lies in the caller or, if the call does not return, possibly just after its end: so
the byte before is looked up. Compilers move parts of a function elsewhere, under a name of their
own (``vfs_read.cold``).
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ftpatch.boot.nesting import NOBODY
from ftpatch.boot.stream import Source
from ftpatch.image.kallsyms.kallsyms import Kallsyms

__all__ = ["callers_of"]

COLD = re.compile(r"(.+)\.cold(\.\d+)?")


def callers_of(
    back: NDArray[np.int64], source: Source, kallsyms: Kallsyms, code: NDArray[np.uint32]
) -> NDArray[np.uint32]:
    """For each function that returns to ``back``, int64[n], as in Events: the ``code``, uint32[k],
    of its caller's site among those of ``source``; NOBODY if that has none, and for callers outside
    the image: assembly, modules, BPF."""
    places, which = np.unique(back, return_inverse=True)
    address = np.uint64(source.at) + (places - 1).astype(np.uint64)
    group = kallsyms.groups_of(address)
    outside = address >= kallsyms.ends[group]
    # Code without a symbol may follow code with one: the last site before it counts.
    order = np.argsort(source.ip, kind="stable")
    before = np.searchsorted(source.ip[order], address, side="right") - 1
    site = order[before]
    site[(before < 0) | (kallsyms.groups_of(source.ip)[site] != group) | outside] = -1
    parts = np.full(len(kallsyms.start) + 1, -1, np.int64)  # the last one is for none
    seen = np.unique(group[~outside & (site < 0) & (group >= 0)])
    parts[seen] = _of_cold_parts(seen, source, kallsyms)
    site = np.where((site < 0) & ~outside, parts[group], site)
    found = np.where(site >= 0, code[site], np.uint32(NOBODY))
    return np.asarray(found.astype(np.uint32)[which])


def _of_cold_parts(
    groups: NDArray[np.intp], source: Source, kallsyms: Kallsyms
) -> NDArray[np.int64]:
    """Row of the site of the function that each is a part of, int64[m]; -1 if it is not a part, or
    if several functions have its name."""
    parts = [COLD.fullmatch(name) for name, _, _ in kallsyms.lookup(kallsyms.start[groups])]
    rows: dict[str, int] = {}
    if any(parts):
        for row, (name, _, _) in enumerate(kallsyms.lookup(source.ip)):
            rows[name] = -1 if name in rows else row
    return np.array([rows.get(part[1], -1) if part else -1 for part in parts], np.int64)
