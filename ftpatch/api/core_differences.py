# SPDX-License-Identifier: MIT
"""Differences between a kernel in a core and its vmlinux, as that boots: what was enabled since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from ftpatch.arch import State
from ftpatch.core.columns import addresses
from ftpatch.diff.code_text import code_text, whole_instructions
from ftpatch.diff.diff import Difference
from ftpatch.kcore.check_text import jump_from, stretches
from ftpatch.kcore.explained import Explained, explain
from ftpatch.kcore.in_core import InCore, open_in_core

__all__ = ["CoreDifferences"]

PROBE = 8
"""Bytes of code that are read at a kprobe."""


class CoreDifferences:
    """Differences, as ``Differences`` has them: sites that are no NOPs, kprobes, and code that
    nothing explains. What a kernel does to its text when it boots is none. Addresses are those of
    the running kernel."""

    moved = False

    def __init__(self, kernel: InCore, found: Explained) -> None:
        self._kernel, self._found = kernel, found
        self._rows = np.flatnonzero(found.sites.state != State.NOP)
        self.others = (*self._probes(), *self._code())
        self.identical: bool = not len(self)

    @classmethod
    def read(cls, path: Path, core: Path) -> CoreDifferences:
        """Compare. Raises InputError."""
        kernel = open_in_core(path, core)
        return cls(kernel, explain(kernel))

    def __len__(self) -> int:
        return self.paired + len(self.others)

    @property
    def paired(self) -> int:
        """Number of sites that differ."""
        return len(self._rows)

    def sites(self, limit: int | None = None) -> Iterator[Difference]:
        """Sites that are not NOPs, of at most ``limit``, by address."""
        sites = self._found.sites
        rows = self._rows[np.argsort(sites.ip[self._rows])]
        places = self._kernel.file.kallsyms.places(sites.ip[rows])
        for row, place in islice(zip(rows.tolist(), places, strict=True), limit):
            ip = int(sites.ip[row])
            new = "neither a NOP nor a call"
            if sites.state[row] == State.CALL:
                name = sites.targets.name[int(sites.targets.index(sites.addr[[row]])[0])]
                new = f"call {name}"
            offset = int(sites.offset[row]) + sites.lead
            yield Difference("site", self._kernel.above(ip), offset, place, "nop", new)

    def groups(self) -> list[tuple[str, str, str, int]]:
        """Kind, old, new, and how many differ in this way, the most frequent first."""
        rows = [*self.sites(), *self.others]
        counts = Counter((row.kind, row.old, row.new) for row in rows)
        return [(*key, count) for key, count in counts.most_common()]

    def _probes(self) -> Iterator[Difference]:
        for probe in self._found.kprobes:
            at = self._kernel.below(probe.address)
            if (self._found.sites.ip == np.uint64(at)).any():
                continue  # the site tells of it
            yield self._difference("kprobe", *whole_instructions(self._found.sites, at, at + 1))

    def _code(self) -> Iterator[Difference]:
        for low, size in stretches(self._kernel, self._found):
            yield self._difference("code", *whole_instructions(self._found.sites, low, low + size))

    def _difference(self, kind: str, low: int, high: int) -> Difference:
        text, sites = self._found.text, self._found.sites
        old = text.file_code(low, high - low)
        new = text.now(addresses(low), high - low)[0].tobytes()
        place = self._kernel.file.kallsyms.places(addresses(low))[0]
        offset = int(self._kernel.file.elf.offset_of(addresses(low))[0])
        target = jump_from(self._kernel, self._found, low)
        words = f"a jump to {target}" if target else code_text(sites, new, low)
        before = code_text(sites, old, low)
        return Difference(kind, self._kernel.above(low), offset, place, before, words)
