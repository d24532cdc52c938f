# SPDX-License-Identifier: MIT
"""Accesses to watched variables of all traces, merged by time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.layout import constants
from ftpatch.trace.decode import TYPE, Decoded, Event, decode
from ftpatch.trace.reader import Opened, Trace
from ftpatch.watch import Watch
from ftpatch.watch.access_stacks import AccessStacks, has_stacks, stack_words
from ftpatch.watch.table import Told
from ftpatch.watch.trace_watches import read_watched

__all__ = [
    "PLACE",
    "WORDS",
    "Recorded",
    "places_of",
    "read_accesses",
    "recorded",
    "watches_of",
    "words_behind",
]

ACCESS = constants["EVENT_ACCESS"]
WORDS: Final = 4
"""Words of an event after the first: ip, the value before, the value now, CPU."""
PLACE: Final = 5
"""Columns that tell of an access: process, thread, number of its watch, time, stack."""
NO_CPU = 0xFFFF_FFFF
LATE = constants["TRACE_LATE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One access. ``time`` in nanoseconds since the start; ``ip``: the address in memory after the
    instruction; ``before`` and ``after``: the value at the previous look, and now. ``cpu`` is None
    if unknown; ``late``: SIGTRAP was blocked, and ``ip`` is where it was unblocked. ``stack``:
    number of the calls that led there, None if they are not recorded."""

    process: int
    thread: int
    time: int
    watch: Watch
    ip: int
    before: int
    after: int
    cpu: int | None
    late: bool
    stack: int | None


def recorded(
    place: NDArray[np.int64], words: NDArray[np.uint64], told: Sequence[Sequence[Told | None]]
) -> Iterator[Recorded]:
    """Yield accesses. ``place`` int64[n, PLACE]: process, thread, number of its watch, time
    (nanoseconds), number of the stack or -1; ``words`` uint64[n, 4] as in events; ``told``: each
    process's watches."""
    rows = zip(place.tolist(), words.tolist(), strict=True)
    for (process, thread, number, time, stack), (ip, before, after, cpu) in rows:
        one = told[process][number]
        assert one is not None
        low = cpu & NO_CPU
        yield Recorded(
            process=process,
            thread=thread,
            time=time,
            watch=one.watch,
            ip=ip,
            before=before,
            after=after,
            cpu=None if low == NO_CPU else low,
            late=bool(cpu & LATE),
            stack=stack if stack >= 0 else None,
        )


def words_behind(
    told: Sequence[Told | None], words: NDArray[np.uint64]
) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return how many words would follow each of ``words``, uint[k, n], if it began an event of
    these watches: uint16 if there are stacks, and uint8 if not."""
    kind = words & np.uint64(TYPE)
    behind = np.asarray(np.where(kind == ACCESS, WORDS, kind == Event.TIME), np.uint8)
    return behind + stack_words(told, words, WORDS) if has_stacks(told) else behind


def places_of(
    found: Decoded,
    words: NDArray[np.uint64],
    time: NDArray[np.int64],
    *,
    process: NDArray[np.int32],
    thread: NDArray[np.int32],
    told: Sequence[Sequence[Told | None]],
    stacks: AccessStacks,
    span: tuple[int, int],
) -> tuple[NDArray[np.int64], NDArray[np.uint64], int]:
    """Return ``place`` and ``words``, as recorded() takes them, of the accesses ``found`` in words,
    uint64[k, n], at ``time`` int64[m] in a ``span`` of nanoseconds, and the number of chunks with
    others. ``process`` and ``thread`` int32[k] are those of the chunks."""
    slots = max(map(len, told), default=0)
    there = np.array([[one is not None for one in watches] for watches in told], bool)
    good = (found.type == ACCESS) & (found.func < slots)
    good &= there[process[found.row], np.where(good, found.func, 0)]
    wrong = len(np.unique(found.row[~good]))
    good &= (time >= span[0]) & (time <= span[1])
    row, at = found.row[good], found.at[good]
    number = stacks.numbers(told, words.ravel(), at, process[row], found.func[good], WORDS)
    columns = (process[row], thread[row], found.func[good], time[good], number)
    place = np.stack([column.astype(np.int64) for column in columns], axis=1)
    return place, words.ravel()[at[:, None] + np.arange(1, 1 + WORDS)], wrong


def read_accesses(
    trace: Trace, told: Sequence[Sequence[Told | None]], stacks: AccessStacks
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Read the accesses of all traces by time: ``place`` and ``words``, as recorded() takes
    them. Raises InputError."""
    place = [np.empty((0, PLACE), np.int64)]
    words = [np.empty((0, WORDS), np.uint64)]
    for file in range(len(trace.sources)):
        for found in _of(trace, told, stacks, file):
            place.append(found[0])
            words.append(found[1])
    order = np.argsort(np.concatenate(place)[:, 3], kind="stable")
    return np.concatenate(place)[order], np.concatenate(words)[order]


def watches_of(trace: Opened) -> list[list[Told | None]]:
    """Read each process's watches, with what they have counted by now. Raises InputError for a
    corrupt header."""
    out = list[list[Told | None]]()
    for process, run in enumerate(trace.runs):
        plain = trace.recording.program_of(process).plain
        sources = [trace.sources[number] for number in run]
        first, *others = (read_watched(one.fd, one.header, plain=plain) for one in sources)
        for source, other in zip(sources[1:], others, strict=True):
            if [one and one.watch for one in other] != [one and one.watch for one in first]:
                reason = f"it has other watches than {sources[0].header.path}"
                raise InputError(source.header.path, reason)
        out.append([*map(_latest, zip(first, *others, strict=True))])
    return out


def _latest(told: Sequence[Told | None]) -> Told | None:
    """A watch as the last file of its process has it: each begins with the counts of the one
    before."""
    known = [one for one in told if one is not None]
    if not known:
        return None
    hits, missed = (max(getattr(one, name) for one in known) for name in ("hits", "missed"))
    return replace(known[0], hits=hits, missed=missed)


def _of(
    trace: Trace, told: Sequence[Sequence[Told | None]], stacks: AccessStacks, file: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """Yield ``place`` and ``words`` of a file's accesses, some chunks at a time."""
    chunks, process = trace.chunks, int(trace.processes[file])
    for rows, words in trace.batches.of_file(file):
        behind = words_behind(told[process], words)
        found = decode(words, chunks.words[rows], chunks.base[rows], behind)
        place, values, wrong = places_of(
            found,
            words,
            trace.clocks[file].times(found.ticks),
            process=np.full(len(rows), process, np.int32),
            thread=chunks.thread[rows],
            told=told,
            stacks=stacks,
            span=trace.recording.window.span,
        )
        trace.batches.torn += found.torn + wrong
        yield place, values
