# SPDX-License-Identifier: MIT
"""Jumps that ftpatch's own probes have put into a process, by its journal."""

from __future__ import annotations

from ftpatch.arch import Abi, arch_named
from ftpatch.errors import InputError
from ftpatch.process.process import Process
from ftpatch.process.process_journal import recall

__all__ = ["own_jumps"]


def own_jumps(process: Process) -> dict[int, str]:
    """Names of the probes by the addresses in the process of all bytes of their jumps, and by the
    ip of the sites, if those are pads; none where the journal cannot be read."""
    try:
        entry = recall(process)
    except InputError:
        return {}
    if entry is None or not entry.probes:
        return {}
    names = dict[int, str]()
    for address, text in entry.probes:
        name = text.split(" ", 1)[0]
        names[address] = f"{names[address]}, {name}" if address in names else name
    lead = arch_named(entry.arch).lead(Abi(pad=True))
    changes = zip(entry.changes.offset.tolist(), entry.changes.width.tolist(), strict=True)
    return {
        at + byte: names[at]
        for at, width in changes
        if at in names
        for byte in (lead, *range(width))
    }
