# SPDX-License-Identifier: MIT
"""Refused Changes as ftrace_bug reports them."""

from __future__ import annotations

import errno

import numpy as np

from ftpatch.core.changes import NO_OWNER, Kind
from ftpatch.ftrace.ftrace_bug import FtraceBug
from ftpatch.ftrace.short_pads import too_short
from ftpatch.ftrace.sites import Sites
from ftpatch.write.verify import Verdict

__all__ = ["refused_sites"]


def refused_sites(sites: Sites, verdict: Verdict, action: str) -> list[tuple[FtraceBug, str]]:
    """Each refused Change with the reason in words, one per site, in the order of addresses."""
    rows = verdict.refused()
    changes = verdict.changes
    owner = changes.owner[rows]
    places = sites.image.kallsyms.lookup(owner)
    short = too_short(sites) if len(rows) else ""
    out = []
    for row, ip, place in zip(rows.tolist(), owner.tolist(), places, strict=True):
        width = int(changes.width[row])
        symbol, offset, size = place if ip != NO_OWNER else ("", 0, 0)
        kind = Kind(int(changes.kind[row])).name.lower()
        code = int(verdict.errno[row])
        if code == errno.EFAULT:
            reason = "EFAULT: not in executable text of the file"
        elif verdict.overlaps[row]:
            reason = "EINVAL: overlaps another site"
        elif verdict.relocated[row]:
            reason = "EINVAL: a relocation overwrites it when the file is loaded"
        elif np.array_equal(verdict.actual[row], changes.old[row]):
            reason = "EINVAL: not at an instruction boundary"
        elif short and kind == "code":
            reason = f"EINVAL: {short}"
        else:
            reason = f"EINVAL: the {kind} is not what was expected"
        bug = FtraceBug(
            errno=code,
            ip=ip if ip != NO_OWNER else int(changes.offset[row]),
            symbol=symbol,
            offset=offset,
            size=size,
            actual=verdict.actual[row, :width].tobytes(),
            expected=changes.old[row, :width].tobytes(),
            action=action,
            word=sites.image.elf.word,
        )
        out.append((bug, reason))
    return out
