# SPDX-License-Identifier: MIT
"""Accesses to watched variables of all traces, merged by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants
from ftpatch.trace.decode import BLOCK, TYPE, Event, decode
from ftpatch.trace.reader import Trace
from ftpatch.watch import Watch
from ftpatch.watch.table import Told
from ftpatch.watch.trace_watches import read_watched

__all__ = ["Accesses", "Recorded", "read_accesses"]

ACCESS = constants["EVENT_ACCESS"]
WORDS = 4
"""Words of an event after the first: ip, the value before, the value now, CPU."""
NO_CPU = 0xFFFF_FFFF
LATE = constants["TRACE_LATE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One access. ``time`` in nanoseconds since the start; ``ip``: the address in memory after the
    instruction; ``before`` and ``after``: the value at the previous look, and now. ``cpu`` is None
    if unknown; ``late``: SIGTRAP was blocked, and ``ip`` is where it was unblocked."""

    file: int
    thread: int
    time: int
    watch: Watch
    ip: int
    before: int
    after: int
    cpu: int | None
    late: bool


class Accesses:
    """n accesses by time. ``place`` int64[n, 4]: file, thread, number of the file's watch, time
    (nanoseconds); ``words`` uint64[n, 4] as in events. ``told``: each file's watches."""

    def __init__(self, trace: Trace, told: list[list[Told | None]]) -> None:
        self._trace, self.told = trace, told
        place = [np.empty((0, 4), np.int64)]
        words = [np.empty((0, WORDS), np.uint64)]
        for row in range(len(trace.chunks)):
            found = self._chunk(row)
            place.append(found[0])
            words.append(found[1])
        order = np.argsort(np.concatenate(place)[:, 3], kind="stable")
        self.place, self.words = (np.concatenate(parts)[order] for parts in (place, words))

    def __len__(self) -> int:
        return len(self.place)

    def __iter__(self) -> Iterator[Recorded]:
        rows = zip(self.place.tolist(), self.words.tolist(), strict=True)
        for (file, thread, number, time), (ip, before, after, cpu) in rows:
            told = self.told[file][number]
            assert told is not None
            low = cpu & NO_CPU
            known = None if low == NO_CPU else low
            yield Recorded(
                file=file,
                thread=thread,
                time=time,
                watch=told.watch,
                ip=ip,
                before=before,
                after=after,
                cpu=known,
                late=bool(cpu & LATE),
            )

    def _chunk(self, row: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """``place`` and ``words`` of one chunk's accesses."""
        trace, chunks = self._trace, self._trace.chunks
        file, length = int(chunks.file[row]), int(chunks.words[row])
        words = np.zeros((1, -(-max(length, 1) // BLOCK) * BLOCK), np.uint64)
        trace.batches.fill(words[0], row)
        kind = words & np.uint64(TYPE)
        behind = np.where(kind == ACCESS, WORDS, kind == Event.TIME).astype(np.uint8)
        base = chunks.base[row : row + 1]
        found = decode(words, chunks.words[row : row + 1], base, behind)
        there = np.array([told is not None for told in self.told[file]])
        good = (found.type == ACCESS) & (found.func < len(there))
        good &= there[np.where(good, found.func, 0)]
        trace.batches.torn += found.torn + int((~good).any())
        time = trace.clocks[file].times(found.ticks)
        low, high = trace.recording.window.span
        good &= (time >= low) & (time <= high)
        number, at = found.func[good].astype(np.int64), found.at[good]
        same = np.full((2, len(at)), [[file], [int(chunks.thread[row])]], np.int64)
        place = np.stack([*same, number, time[good]], axis=1)
        return place, words[0][at[:, None] + np.arange(1, 1 + WORDS)]


def read_accesses(trace: Trace) -> Accesses:
    """Read the accesses of all traces. Raises InputError for a corrupt header."""
    recording = trace.recording
    programs = [recording.program_of(number) for number in range(len(trace.headers))]
    return Accesses(
        trace,
        [
            read_watched(source.fd, source.header, plain=program.plain)
            for source, program in zip(trace.sources, programs, strict=True)
        ],
    )
