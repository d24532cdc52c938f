# SPDX-License-Identifier: MIT
"""What a boot tracer says of who called whom is what gdb says of the untouched kernel."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from .boot_frames import backtraces
from .boot_oracle import GLOBAL
from .booted import Booted, boot_traced
from .independent import Vmlinux

CUT = "ftrace_init"  # as in test_boot_oracle: up to it, both boots call the same functions
UNTIL = "sched_init"
# What loops call by the ten thousand: left out, since all rows of the others are read.
LEFT_OUT = (
    *("jump_label_[cs]*", "*_cmp", "static_call_site_*", "*orc_find*", "*flush_tlb_*one*"),
    *("*set_fixmap", "copy_from_kernel_nofault*", "pgattr_*", "read_pci_config", "numa_set_node"),
    *("_raw_spin_*lock", "e820__mapped_*", "memcpy_fromio"),
)
FIRST = "start_kernel"  # gdb does not unwind the assembly before it
COLLECTED = (
    "mutex_lock",
    "mutex_unlock",
    "__mutex_init",
)  # many callers; nothing that they call stays
CHOSEN, MOST = 100, 2
SHOWN = 5
LEAST = 150  # callers that have to be compared

Chain = tuple[int, ...]


def test_callers_are_those_of_a_debugger(traceable: Vmlinux, scratch: Path) -> None:
    """All callers of some hundred events, up to the first one that has no site."""
    quiet = [pattern for pattern in LEFT_OUT if matching(traceable.names, pattern)]
    words = [word for pattern in quiet for word in ("--notrace", pattern)]
    sites = zip(traceable.sites.tolist(), traceable.kallsyms.lookup(traceable.sites), strict=True)
    starts = {
        ip - offset: ip
        for ip, (name, offset, _) in sites
        if not any(fnmatchcase(name, pattern) for pattern in quiet)
    }
    told = _chains(boot_traced(traceable.path, "--until", UNTIL, *words))
    top = next(at for at, ip in starts.items() if ip == _site(traceable, FIRST))
    of: dict[int, list[Chain]] = {}
    for chain in told:
        of.setdefault(chain[0], []).append(chain)
    collected = {_site(traceable, name) for name in COLLECTED}
    chosen = random.Random(5).sample(sorted(of), CHOSEN)
    chosen += [at for at in of if starts[at] in collected and at not in chosen]
    by_site = {starts[at]: at for at in chosen}
    until = traceable.address(CUT) + (GLOBAL if traceable.arch == "ppc64le" else 0)
    frames = backtraces(traceable, scratch, by_site, MOST, until)
    bounds = traceable.address("_stext"), traceable.address("_end")
    wrong, compared = [], 0
    for here, found in frames:
        at = by_site[here]
        if not of[at]:
            continue  # called once more behind the last event
        said = of[at].pop(0)
        wanted = (at, *_functions(traceable, found, starts, top, bounds))
        compared += len(wanted) - 1
        if said[: len(wanted)] != wanted:
            wrong.append(f"{_names(traceable, said)}, not {_names(traceable, wanted)}")
    assert compared > LEAST
    assert not wrong, f"{len(wrong)} of {len(frames)}:\n" + "\n".join(wrong[:SHOWN])


def _chains(booted: Booted) -> list[Chain]:
    """Where the function of each event begins, and its callers, the innermost first."""
    stacks: dict[int, list[int]] = {}
    found = []
    for row in booted.rows:
        if row["event"] == "entry":
            stack = stacks.setdefault(row["tid"], [])
            stack[row["depth"] :] = [int(row["address"], 16)]
            found.append(tuple(reversed(stack)))
    return found


def _functions(
    image: Vmlinux, places: list[int], starts: dict[int, int], top: int, bounds: tuple[int, int]
) -> Iterator[int]:
    """The functions in which each place is behind a call, up to the first one that has no site, or
    the one at ``top``; of a .cold part, its own. ``bounds``: of the kernel."""
    low, high = bounds
    inside = np.array([at - 1 for at in places if low < at < high], np.uint64)
    for (name, offset, _), at in zip(image.kallsyms.lookup(inside), inside.tolist(), strict=True):
        start = at - offset
        if name.endswith(".cold"):
            start = image.find(name.removesuffix(".cold")) or start
        if start not in starts:
            return
        yield start
        if start == top:
            return


def _site(image: Vmlinux, name: str) -> int | None:
    return int(image.sites[image.names.index(name)]) if name in image.names else None


def _names(image: Vmlinux, chain: Chain) -> str:
    return " < ".join(name for name, _, _ in image.kallsyms.lookup(np.array(chain, np.uint64)))
