# SPDX-License-Identifier: MIT
"""Functions and their records: each that was compiled to be traced has one, at its entry.

    x86    | function: [endbr] | site ...             ip
    arm64  | function: [bti]   | site: lead, ip ...   ip - 4
    -pg    | function: prologue ... | call mcount     anywhere

Compilers put a site of the first two forms at the very entry; so it is in every Debian kernel and
module. A record further in would have ftrace write into the middle of a function. Bodies of
overridden weak functions have no symbol any more: their records, 296 to 615 in a Debian 6.1 kernel,
lie outside of every function, where nothing is asked. (Later kernels null them when they are
built: scripts/sorttable.c.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.symbols import Symbols
from ftpatch.ftrace.callees import read_targets
from ftpatch.ftrace.check.findings import Broken
from ftpatch.ftrace.lost_records import find_lost
from ftpatch.ftrace.site_code import read_code
from ftpatch.ftrace.sites import Sites
from ftpatch.image import Image

__all__ = ["off_entry", "recorded", "unrecorded"]

BEHIND = ("mcount", "_mcount", "__gnu_mcount_nc")
"""Callees of -pg without -mfentry: called behind the prologue."""


def unrecorded(sites: Sites) -> Broken:
    """Functions without a record that begin as those with one do."""
    lost = find_lost(sites)
    message = f"the function begins with {lost.what}, but has no record in the table"
    return lost.ip, [message] * len(lost)


def recorded(sites: Sites) -> tuple[str, ...]:
    """The functions that have a record, unless it was dropped, sorted: each as kallsyms names it,
    or by its address where no symbol does. A record behind the end of a function, in the body of
    an overridden weak one, does not count."""
    ip = sites.ip[~sites.dropped]
    kallsyms = sites.image.kallsyms
    group = kallsyms.groups_of(ip)
    names = kallsyms.lookup(ip)
    deep = np.array([offset for _, offset, _ in names], np.int64) - sites.lead
    own = (group < 0) | (deep == 0) | (deep == sites.arch.landing_size)
    inside = ip < kallsyms.ends[group]
    if not sites.image.has_table:  # it may call mcount, behind the prologue
        own |= inside
    own |= inside & _behind(sites, np.flatnonzero(~sites.dropped))
    rows = zip(names, ip.tolist(), own.tolist(), strict=True)
    return tuple(sorted(name or hex(at) for (name, _, _), at, whole in rows if whole))


def off_entry(sites: Sites) -> Broken:
    """Sites that are inside a function by the symbols, but not at its entry."""
    start, end = _functions(sites.image)
    begin = sites.ip - np.uint64(sites.lead)
    row = np.searchsorted(start, begin, side="right") - 1
    inside = (row >= 0) & (begin < end[row]) & (sites.offset >= 0)
    distance = begin - start[row]
    code, _ = sites.image.elf.gather(sites.image.elf.offset_of(start[row]), sites.arch.around)
    landed = (distance == sites.arch.landing_size) & sites.arch.landing(code)
    rows = np.flatnonzero(inside & (distance != 0) & ~landed)
    rows = rows[~_behind(sites, rows)]
    return sites.ip[rows], [
        f"the site is {far} bytes into a function of {size} bytes, not at its entry"
        for far, size in zip(
            distance[rows].tolist(), (end - start)[row[rows]].tolist(), strict=True
        )
    ]


def _functions(image: Image) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Start and end of each function that has a size, uint64[n + 1], by start; the last one stands
    for none and is empty. Of names for one address the longest counts."""
    symbols = image.symbols
    sized = np.isin(symbols.type, [Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC]) & (symbols.size > 0)
    rows = np.flatnonzero(sized & (symbols.section != Symbols.SHN_UNDEF))
    start, where = np.unique(symbols.value[rows], return_inverse=True)
    size = np.zeros(len(start), np.uint64)
    np.maximum.at(size, where, symbols.size[rows])
    none = np.array([0xFFFF_FFFF_FFFF_FFFF], np.uint64)
    start, size = np.append(start, none), np.append(size, np.uint64(0))
    return start, start + size


def _behind(sites: Sites, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Test which of the rows called mcount as compiled. Where most sites did, so did the others,
    whatever stands there now: they may be anywhere in their functions."""
    if not len(rows):
        return np.zeros(0, bool)
    original, arch, abi, ip = sites.original, sites.arch, sites.abi, sites.ip
    code, _ = read_code(original, arch, abi, ip, sites.offset)
    _, addr, _, got = arch.decode(code, ip, abi)
    called = np.isin(addr, read_targets(sites.original, sites.arch, addr, got).are(BEHIND))
    most = 2 * int(called.sum()) > len(called)
    return np.ones(len(rows), bool) if most else np.asarray(called[rows])
