# SPDX-License-Identifier: MIT
"""The error of a boot trace's durations: against the instructions that QEMU's log of an untouched
kernel has between a call's site and its return.

Both clocks count instructions. A trace's duration has besides what the tracer runs, and what the
caller runs between the return and its next call: the end of a call is the next event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from .boot_instructions import TICKS, instructions, spans
from .booted import Booted, boot_traced
from .independent import Vmlinux

FIRST, LAST = "early_irq_init", "tick_init"
"""Between them no interrupt comes, and there are calls of all sorts."""
EVENTS = 12_000  # more than there are between them
FEWEST = 1000  # of these, where a kernel soon does something else because its clock differs (SLUB)
COST = {"x86_64": 41, "arm64": 40}
"""Instructions of the tracer for each event, without the NOPs that it replaces."""
TELLS = {"x86_64": 2, "arm64": 6}
"""And those that tell the reader of every 32nd event."""


@dataclass(frozen=True)
class Told:
    """Events of a trace, as columns: the start of each function, its time, and the row of the event
    that ends it, -1 if none does."""

    at: list[int]
    time: NDArray[np.int64]
    last: NDArray[np.int64]


def _told(booted: Booted) -> Told:
    at: list[int] = []
    time: list[int] = []
    last: list[int] = []
    inside: dict[int, list[int]] = defaultdict(list)
    for row in booted.rows:
        if row["event"] == "entry":
            inside[row["tid"]].append(len(at))
            at.append(int(row["address"], 16))
            time.append(row["time"])
            last.append(-1)
        elif inside[row["tid"]]:  # exits precede the entry that reveals them
            last[inside[row["tid"]].pop()] = len(at)
    return Told(at, np.array(time), np.array(last))


def test_durations_are_too_long_by_what_is_said(traceable: Vmlinux, scratch: Path) -> None:
    """The figures in docs/boot.md are those that this prints of Debian's 6.1 kernels."""
    arch = traceable.arch
    if arch == "i386":
        pytest.skip("as on x86_64")
    machine = TICKS.get(arch, ())
    words = ("--time", "--until", LAST, "--last", str(EVENTS))
    told = _told(boot_traced(traceable.path, *words, machine=machine))
    ends = (traceable.address(name) for name in (FIRST, LAST))
    ran = spans(traceable, instructions(traceable, scratch, *ends))
    starts: dict[int, int] = {}
    named = zip(traceable.sites.tolist(), traceable.kallsyms.lookup(traceable.sites), strict=True)
    for ip, (_, offset, _) in named:
        starts.setdefault(ip - offset, ip)
    first = max(row for row, at in enumerate(told.at) if at == traceable.address(FIRST))
    pairs = zip(ran, told.at[first:], strict=False)
    same = next((n for n, (one, at) in enumerate(pairs) if one.ip != starts[at]), len(ran))
    assert same >= FEWEST
    begin, end = (np.array([getattr(one, name) for one in ran[:same]]) for name in ("begin", "end"))
    time, last = told.time[first:][:same], told.last[first:][:same] - first

    # Between two events: what the tracer runs, and sometimes its wait for the reader.
    more = np.diff(time) - np.diff(begin)
    counts = Counter(more.tolist())
    cost = COST[arch]
    assert counts.most_common(1)[0][0] == cost
    # One in 32 tells the reader, which then frees some slots: as many may wait for it. Loops that
    # wait for a device, as the console's on arm64, go round less often where each takes longer.
    told_share = counts[cost + TELLS[arch]] / len(more)
    assert counts[cost] > 0.9 * len(more)
    assert 1 / 64 < told_share < 1 / 24

    # Between an event and the one that ends it.
    rows = np.flatnonzero((last > 0) & (last < same) & (end > 0))
    assert len(rows) > 0.9 * FEWEST
    behind = begin[last[rows]] - end[rows]
    error = time[last[rows]] - time[rows] - (end - begin)[rows] - cost * (last[rows] - rows)
    print(arch, same, len(rows), counts.most_common(3))
    print("behind the return:", np.percentile(behind, [50, 90, 99, 100]))
    print("in all:", np.percentile(error, [50, 90, 99, 100]))
    assert (behind >= 0).all()  # no call is told to end before it does
    assert 0 <= np.median(error) <= 60  # 28 and 30: a few instructions up to the next call
    assert np.percentile(behind, 90) <= 300  # 36 and 148
