# SPDX-License-Identifier: MIT
"""Code that ftpatch itself has put into a process, by its journal: a tracer, and the jumps and
traps of probes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, arch_named
from ftpatch.errors import InputError
from ftpatch.process.process import Process
from ftpatch.process.process_journal import Entry, recall

__all__ = ["OwnCode", "OwnTracer"]


@dataclass(frozen=True, kw_only=True)
class OwnTracer:
    """A tracer in a process: its ``name``, and the bounds of its code (``spans``)."""

    name: str
    spans: tuple[tuple[int, int], ...]

    def holds(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Test which addresses are in its code, bool[n]."""
        inside = np.zeros(len(addresses), bool)
        for low, high in self.spans:
            inside |= (addresses >= low) & (addresses < high)
        return inside


class OwnCode:
    """ftpatch's own code in a process. The journal is read once, when it is first asked for."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @cached_property
    def tracer(self) -> OwnTracer | None:
        """Its tracer; None without one, or where the journal cannot be read."""
        entry = self._entry
        if entry is None or entry.probes:
            return None
        spans = tuple((start, start + size) for start, size, *_ in entry.areas)
        return OwnTracer(name=entry.tracer, spans=spans)

    @cached_property
    def jumps(self) -> dict[int, str]:
        """Names of the probes by the addresses in the process of all bytes of their jumps or traps,
        and of what leads system calls to them, and by the ip of the sites, if those are pads; none
        where the journal cannot be read."""
        entry = self._entry
        if entry is None or not entry.probes:
            return {}
        names = dict.fromkeys(entry.led, "system calls about signals")
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

    @cached_property
    def _entry(self) -> Entry | None:
        try:
            return recall(self._process)
        except InputError:
            return None
