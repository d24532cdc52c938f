# SPDX-License-Identifier: MIT
"""Rules on functions without a record."""

from __future__ import annotations

import numpy as np

from ftpatch.ftrace.sites import Sites

__all__ = ["recorded"]


def recorded(sites: Sites) -> tuple[str, ...]:
    """The functions of which the table has a record that was not dropped, sorted: each as kallsyms
    names it, by its address where no symbol does. What lies behind a function, the body of an
    overridden weak one, is none."""
    ip = sites.ip[~sites.dropped]
    kallsyms = sites.image.kallsyms
    group = kallsyms.groups_of(ip)
    names = kallsyms.lookup(ip)
    deep = np.array([offset for _, offset, _ in names], np.int64) - sites.lead
    own = (group < 0) | (deep == 0) | (deep == sites.arch.landing_size)
    if not sites.image.has_table:  # it may call mcount, behind the prologue
        own |= ip < kallsyms.ends[group]
    rows = zip(names, ip.tolist(), own.tolist(), strict=True)
    return tuple(sorted(name or hex(at) for (name, _, _), at, whole in rows if whole))
