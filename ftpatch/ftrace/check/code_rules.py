# SPDX-License-Identifier: MIT
"""Rules on what stands at the sites."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import State
from ftpatch.core.changes import Kind
from ftpatch.core.columns import addresses, within
from ftpatch.core.journal import journalled
from ftpatch.ftrace.callees import CALLERS
from ftpatch.ftrace.check.findings import Broken, broken
from ftpatch.ftrace.short_pads import too_short
from ftpatch.ftrace.site_code import call_rows, read_code, written
from ftpatch.ftrace.sites import Sites
from ftpatch.image.injected import gone_entry
from ftpatch.names.demangle import demangled

__all__ = [
    "foreign",
    "overlapping",
    "relocated",
    "unknown",
    "undone",
    "unlinked",
    "unplaced",
    "unstarted",
]

STRIPPED = "strip and objcopy drop what ftpatch has inserted"


def unplaced(sites: Sites) -> Broken:
    """Sites in a pad of which any part may lie before its function."""
    return broken(sites, ~sites.placed, "no symbol gives the function's entry in this pad")


def overlapping(sites: Sites) -> Broken:
    """Sites whose code begins before that of a lower site ends; the same site twice is no overlap
    but a repeated record."""
    start = sites.ip - np.uint64(sites.lead)
    unique, first = np.unique(start, return_index=True)
    end = unique + sites.width[first]
    hit = first[1:][unique[1:] < np.maximum.accumulate(end)[:-1]]
    mask = np.zeros(len(sites), bool)
    mask[hit] = True
    return broken(sites, mask, "the site overlaps the previous one")


def relocated(sites: Sites) -> Broken:
    """Sites that a loader would write to, besides the distance of a relocatable file's call."""
    image, arch = sites.image, sites.arch
    start = sites.ip - np.uint64(sites.lead)
    width = sites.width.astype(np.int64)
    writes = image.relocations.touch(start, width, written(image, arch))
    if image.is_relocatable:
        writes -= (call_rows(image, arch, sites.ip) >= 0) & (sites.state == State.CALL)
    return broken(sites, writes > 0, "a relocation overwrites this site")


def undone(sites: Sites) -> Broken:
    """Calls whose record is in the table of a kernel whose ftrace_init compares nothing."""
    mask = np.zeros(len(sites), bool)
    if sites.abi.kernel and not sites.arch.init_expects(sites.ip[:1], sites.abi)[1].shape[1]:
        mask = (sites.state == State.CALL) & ~sites.dropped
    mask |= _unseen(sites)
    return broken(
        sites, mask, "ftrace_init turns this call into a NOP, because its record is present"
    )


def _unseen(sites: Sites) -> NDArray[np.bool_]:
    """Sites with another call than the compiled one where ftrace_init compares nothing, bool[n]."""
    calls = (sites.state == State.CALL) & (sites.addr != sites.abi.mcount) & ~sites.dropped
    return np.asarray(calls & within(sites.ip, sites.abi.unchecked))


def unlinked(sites: Sites) -> Broken:
    """Calls of a relocatable file that no relocation will lead anywhere."""
    if not sites.image.is_relocatable:
        return broken(sites, np.zeros(len(sites), bool), "")
    lost = (sites.state == State.CALL) & (call_rows(sites.image, sites.arch, sites.ip) < 0)
    return broken(sites, lost, "the call has no relocation")


def unknown(sites: Sites) -> Broken:
    """Sites that hold neither a known NOP nor a call."""
    rows = np.flatnonzero((sites.state == State.UNEXPECTED) & (sites.offset >= 0))
    code = (sites.code[row].tobytes().hex(":") for row in rows.tolist())
    why = too_short(sites) if len(rows) else ""
    end = f"; {why}" if why else ""
    return sites.ip[rows], [f"neither a known NOP nor a call: {held}{end}" for held in code]


def foreign(sites: Sites) -> Broken:
    """Calls of what is none of the image's ftrace entries, unless the journal says that ftpatch
    made them so."""
    own = sites.targets.are((*sites.arch.mcount_names, *CALLERS))
    own = np.append(own, addresses(sites.abi.mcount, sites.abi.mcount_got))
    final = [int(f) for f in sites.targets.final if f in own]
    own = np.append(
        own, sites.targets.addr[np.isin(sites.targets.final, np.array(final, np.uint64))]
    )
    ours = np.isin(sites.ip, journalled(sites.blocks, Kind.CODE).owner)
    left, _ = read_code(sites.left, sites.arch, sites.abi, sites.ip, sites.offset)
    beyond = np.arange(left.shape[1]) >= sites.width[:, None]
    ours &= ((left == sites.code) | beyond).all(axis=1)
    away = _nowhere(sites)
    rows = np.flatnonzero(
        (sites.state == State.CALL) & (away | (~np.isin(sites.addr, own) & ~ours))
    )
    names = [sites.targets.name[i] for i in sites.targets.index(sites.addr[rows]).tolist()]
    words = (
        "which is not one of the image's ftrace entries",
        f"where there is nothing; {STRIPPED}",
    )
    return sites.ip[rows], [
        f"calls {demangled(name)}, {words[int(gone)]}"
        for name, gone in zip(names, away[rows].tolist(), strict=True)
    ]


def _nowhere(sites: Sites) -> NDArray[np.bool_]:
    """Sites of a program or a library with a callee that none of its segments maps, bool[n]."""
    image = sites.image
    if image.is_relocatable or not (image.is_program or image.is_library):
        return np.zeros(len(sites), bool)
    return ~image.elf.in_memory(sites.addr)


def unstarted(sites: Sites) -> Broken:
    """The entry point of a program or the DT_INIT of a library, if no segment maps it."""
    image = sites.image
    what = "entry point" if image.is_program else "address in DT_INIT"
    gone = np.array([one for one in [gone_entry(image)] if one], np.uint64)
    return gone, [f"there is nothing at the {what}; {STRIPPED}"] * len(gone)
