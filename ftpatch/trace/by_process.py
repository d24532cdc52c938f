# SPDX-License-Identifier: MIT
"""Several processes in one report: their names, and sums of each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.header import Header
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import EventSource, Origin, Recording
from ftpatch.trace.totals import Summing, Totals, total

__all__ = ["process_name", "process_roots", "processes_of", "totals_of", "whole_totals"]

NAMED = 8
"""Processes that are named one by one."""


def process_name(header: Origin) -> str:
    """``comm-pid``, as ftrace names tasks; of a library that recorded itself with its name: the
    program may have a trace, too."""
    library = header.library if isinstance(header, Header) else ""
    return f"{f'{library} in ' if library else ''}{header.comm}-{header.pid}"


def processes_of(recording: Recording) -> str:
    """A clause that names the processes, if there are several."""
    headers = recording.headers
    if len(headers) < 2:
        return ""
    names = ", ".join(map(process_name, headers[:NAMED]))
    more = f" and {len(headers) - NAMED} more" if len(headers) > NAMED else ""
    return f"{len(headers)} processes: {names}{more}"


def process_roots(recording: Recording) -> NDArray[np.int64] | None:
    """For each thread the number of a function that stands for its process, int64[t], as what
    everything there is called by; None for a single process."""
    if len(recording.headers) < 2:
        return None
    first = len(recording.functions)
    for header in recording.headers:
        recording.functions.stand_in(process_name(header))
    return first + recording.owner.astype(np.int64)


def whole_totals(source: EventSource, batches: Iterable[Rows]) -> Totals:
    """Sums over everything. ``batches``: the source's rows, read if nothing else gives them."""
    sums = source.sums()
    if sums is not None:
        return sums
    tallied = source.tally()
    if tallied is not None:
        return tallied[0]
    return total(batches, source.recording.functions, source.recording.window)


def totals_of(source: EventSource, batches: Iterable[Rows]) -> tuple[Totals, dict[int, Totals]]:
    """Sums over everything and, if there are several processes, over each that has any, by its
    header's number. ``batches``: the source's rows, if it has no sums of its own."""
    recording = source.recording
    several = range(len(recording.headers)) if len(recording.headers) > 1 else range(0)
    sums = source.sums()
    if sums is not None:
        found = ((number, source.sums(number)) for number in several)
        return sums, {number: one for number, one in found if one is not None and len(one)}

    tallied = source.tally()
    if tallied is not None:
        whole_of_it, by_header = tallied
        return whole_of_it, {
            number: by_header[number] for number in several if len(by_header[number])
        }

    def summing() -> Summing:
        return Summing(recording.functions, recording.window)

    whole, each = summing(), {number: summing() for number in several}
    for rows in batches:
        whole.add(rows)
        if not several:
            continue
        mine = recording.owner[rows.thread]
        for number in np.unique(mine).tolist():
            each[number].add(rows.take(mine == number))
    by_process = {number: one.totals() for number, one in each.items()}
    return whole.totals(), {number: one for number, one in by_process.items() if len(one)}
