# SPDX-License-Identifier: MIT
"""The changes that are made to every kernel, and which sites each must reach."""

from __future__ import annotations

import fnmatch
import os
import random
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .fetch import Kernel
from .independent import Vmlinux

__all__ = ["SEED", "Case", "Patched", "cases", "entry_sites"]

SEED = int(os.environ.get("FTPATCH_SEED", "1"))
RANDOM_NAMES = 2000  # of some 40,000


@dataclass(frozen=True)
class Case:
    """One run of `enable` or `disable` over an untouched kernel."""

    kernel: Kernel
    verb: str
    select: str  # "all", a glob, or "random-SEED"

    @property
    def id(self) -> str:
        return f"{self.kernel.name}-{self.verb}-{self.select.replace('*', '')}"

    def words(self, image: Vmlinux, scratch: Path) -> list[str]:
        """The filter as the command line takes it."""
        if self.select == "all":
            return []
        if not self.select.startswith("random-"):
            return ["-f", self.select]
        names = scratch / f"{self.id}.names"
        names.write_text("".join(f"{name}\n" for name in self._random(image)))
        return ["-f", f"@{names}"]

    def reach(self, image: Vmlinux) -> NDArray[np.bool_]:
        """The sites that this case selects, in the order of `Vmlinux.sites`.

        A function goes by each of its names; what is left of a weak one goes by none.
        """
        if self.select == "all":
            return np.ones(len(image.sites), bool)
        every = image.kallsyms.aliases(image.sites)
        if self.select.startswith("random-"):
            chosen = set(self._random(image))
            hit = [not chosen.isdisjoint(names) for names in every]
        else:
            hit = [bool(fnmatch.filter(names, self.select)) for names in every]
        return np.array(hit) & entry_sites(image)

    def _random(self, image: Vmlinux) -> list[str]:
        names = sorted({n for n, e in zip(image.names, entry_sites(image), strict=True) if e})
        return random.Random(self.select + image.arch).sample(names, RANDOM_NAMES)


def cases(kernel: Kernel, pads: bool) -> list[Case]:
    """A kernel that comes with NOPs has nothing left to disable."""
    filters = ["vfs_*", f"random-{SEED}", "all"]
    made = [Case(kernel, "enable", select) for select in filters]
    return made + [Case(kernel, "disable", select) for select in (["all"] if pads else filters)]


def entry_sites(image: Vmlinux) -> NDArray[np.bool_]:
    """Which sites stand at the entry of the function that kallsyms names for them: their code
    begins where it does, or behind a landing, and is the first there. What lies further is left of
    a weak function that another overrode, and kallsyms, which has lost its name, calls it by the
    function before."""
    last = image.landing + image.extent[0]
    offset = np.array([offset for _, offset, _ in image.kallsyms.lookup(image.sites)])
    starts = image.sites - offset.astype(np.uint64)
    order = np.argsort(image.sites, kind="stable")
    first = np.zeros(len(starts), bool)
    first[order[np.unique(starts[order], return_index=True)[1]]] = True
    return first & (offset <= last)


@dataclass
class Patched:
    """What came of a case."""

    case: Case
    original: Vmlinux
    path: Path
    report: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def image(self) -> Vmlinux:
        return Vmlinux(self.path)

    @cached_property
    def state(self) -> str:
        return "call" if self.case.verb == "enable" else "nop"

    @cached_property
    def changed(self) -> NDArray[np.bool_]:
        """The sites that must be changed: selected, and not in the wanted state already."""
        if self.original.pads and self.case.verb == "disable":
            return np.zeros(len(self.original.sites), bool)
        return self.case.reach(self.original)

    @cached_property
    def dropped(self) -> NDArray[np.bool_]:
        """Those of them whose records must be: all but NOPs where the kernel expects nothing."""
        if self.case.verb == "disable":
            return self.changed & ~self.original.uncompared
        return self.changed

    @cached_property
    def slots(self) -> NDArray[np.int64]:
        """The table's index of each site."""
        return np.flatnonzero(self.original.records != 0)
