# SPDX-License-Identifier: MIT
"""Probe events of all traces, merged by time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants
from ftpatch.probe.fetched import comm_table, fetched
from ftpatch.probe.read_hist import read_hists
from ftpatch.probe.read_stacks import HitStacks, long_words, stack_room
from ftpatch.probe.shared_points import SharedPoints, probes_of
from ftpatch.probe.trace_probes import Probe
from ftpatch.trace.decode import FUNC, FUNC_SHIFT, TYPE, Decoded, Event, decode
from ftpatch.trace.hits import Group, HistTable, Point
from ftpatch.trace.reader import Opened, Trace
from ftpatch.trace.word_file import read_words

__all__ = ["COLUMNS", "Hits", "columns_of", "read_hits", "words_behind"]

HIT, RETURNED = constants["EVENT_HIT"], constants["EVENT_RETURNED"]
BATCH_WORDS = 1 << 18
"""Words decoded at a time."""
STACKS = 1 << 12
"""Stacks read at a time."""
GAP = 1 << 16
"""Minimum gap in bytes between two events for separate reads."""
COLUMNS = 6
"""Of hits: thread, point, time, begin, and of the first word the file and its offset."""


class Hits:
    """The Hits of reports, read when they are shown; ``columns`` int64[COLUMNS, n], by time."""

    def __init__(
        self,
        trace: Opened,
        shared: SharedPoints,
        columns: NDArray[np.int64],
        stacks: HitStacks,
    ) -> None:
        self._trace, self._shared, self.stacks = trace, shared, stacks
        self.points: list[Point] = [*shared.probes]
        self.header, self.numbers, self.told = shared.header, shared.numbers, shared.told
        thread, point, self.time, self.begin, self._file, self._at = columns
        self.thread, self.point = thread.astype(np.int32), point.astype(np.int32)

    @cached_property
    def hists(self) -> list[HistTable]:
        """The histograms of the probes that are selected."""
        told = self._shared.all_told
        chosen = {
            id(probe): self.points[number]
            for probes, numbers in zip(told, self.numbers, strict=True)
            for probe, number in zip(probes, numbers.tolist(), strict=True)
            if number >= 0
        }
        tables = read_hists(self._trace, told)
        points = [chosen.get(id(table.point)) for table in tables]
        pairs = zip(tables, points, strict=True)
        known = self.stacks.known
        return [replace(table, point=point, stacks=known) for table, point in pairs if point]

    def __len__(self) -> int:
        return len(self.time)

    def parts(self) -> Iterator[Hits]:
        """All of them."""
        yield self

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep only the hits of a mask, bool[n]."""
        for name in ("thread", "point", "time", "begin", "_file", "_at"):
            setattr(self, name, getattr(self, name)[mask])

    def group(self, number: int, rows: NDArray[np.intp]) -> Group:
        """Read some events of one probe, with their values."""
        probe, thread = self._shared.probes[number], self.thread[rows]
        words = self.words(rows, probe.before + probe.words)
        comms, index = np.unique(thread, return_inverse=True)
        names = self._trace.recording.comms
        comm = comm_table([names[one] for one in comms.tolist()])[index]
        return Group(
            point=probe,
            header=self.header[number],
            thread=thread,
            owner=self._trace.recording.owner[thread],
            time=self.time[rows],
            duration=self.time[rows] - self.begin[rows],
            caller=words[:, 0] if probe.returns else np.empty(0, np.uint64),
            values=tuple(fetched(probe, words[:, probe.before :], comm)),
            stack=self._stacks_of(probe, rows, words) if probe.definition.stack else None,
            stacks=self.stacks.known,
        )

    def _stacks_of(
        self, probe: Probe, rows: NDArray[np.intp], words: NDArray[np.uint64]
    ) -> NDArray[np.int32]:
        """The numbers of the stacks of some events of one probe, int32[m]."""
        out = np.zeros(len(rows), np.int32)
        owner = self._trace.recording.owner[self.thread[rows]]
        before, room = probe.before + probe.words, stack_room(probe)
        for number in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == number)
            for some in np.split(mine, range(STACKS, len(mine), STACKS)):
                block = self.words(rows[some], before + room)[:, before:]
                caller = words[some, 0] if probe.returns else np.empty(0, np.uint64)
                out[some] = self.stacks.numbers(number, probe, caller, block)
        return out

    def words(self, rows: NDArray[np.intp], count: int) -> NDArray[np.uint64]:
        """Read the words after the first one of each event, uint64[m, count]; zeros where the file
        has shrunk since. Raises InputError if it cannot be read."""
        out = np.zeros((len(rows), count), np.uint64)
        file = self._file[rows]
        for number in np.unique(file).tolist() if count else ():
            mine = np.flatnonzero(file == number)
            mine = mine[np.argsort(self._at[rows[mine]], kind="stable")]
            at = self._at[rows[mine]] + 8
            spans = np.flatnonzero(np.diff(at) > GAP) + 1
            for part, place in zip(np.split(mine, spans), np.split(at, spans), strict=True):
                held = np.zeros(int(place[-1] - place[0]) // 8 + count, np.uint64)
                read_words(self._trace.files[number], int(place[0]), held)
                index = (place - place[0]) // 8
                out[part] = held[index[:, None] + np.arange(count)]
        return out


def read_hits(trace: Trace) -> Hits:
    """Read the events of all traces. Raises InputError for a corrupt header."""
    shared = SharedPoints(trace.recording)
    for run in trace.runs:
        shared.add(probes_of([trace.sources[number] for number in run]))
    parts = [np.empty((COLUMNS, 0), np.int64)]
    parts += [found for file in range(len(trace.sources)) for found in _of(trace, shared, file)]
    columns = np.concatenate(parts, axis=1)
    order = np.argsort(columns[2], kind="stable")
    return Hits(trace, shared, columns[:, order], HitStacks(trace))


def words_behind(
    probes: list[Probe], words: NDArray[np.uint64]
) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return how many words would follow each of ``words``, uint[k, n], if it began an event of
    these probes: uint16 if there are stacks, and uint8 if not."""
    # One extra, non-existent probe stands for invalid numbers.
    sizes = np.array([*(one.before + one.words for one in probes), 0], np.uint8)
    low = words.astype(np.uint32)
    number = np.minimum((low >> np.uint32(FUNC_SHIFT)) & np.uint32(FUNC), len(probes))
    kind = low & np.uint32(TYPE)
    behind = np.where((kind == HIT) | (kind == RETURNED), sizes[number], kind == Event.TIME)
    if not any(probe.definition.stack for probe in probes):
        return np.asarray(behind, np.uint8)
    hit = np.where(kind == _types(probes)[number], number, np.uint32(len(probes)))
    return np.asarray(behind, np.uint16) + long_words(probes, hit, words)


def _types(probes: list[Probe]) -> NDArray[np.uint8]:
    """The types of probes' events, and 0 for the extra one."""
    return np.array([*(RETURNED if one.returns else HIT for one in probes), 0], np.uint8)


def columns_of(
    trace: Opened,
    shared: SharedPoints,
    file: int,
    found: Decoded,
    words: NDArray[np.uint64],
    *,
    thread: NDArray[np.int32],
    place: NDArray[np.int64],
) -> tuple[NDArray[np.int64], int]:
    """Return the columns of the hits ``found`` in words, uint64[k, n], of chunks of one trace, and
    the number of chunks with others; of each chunk ``thread`` int32[k], and ``place`` int64[k],
    the words' file offset."""
    process = int(trace.processes[file])
    probes = shared.all_told[process]
    types = _types(probes)
    func = np.minimum(found.func, len(probes)).astype(np.intp)
    good = found.type == types[func]
    clock, at = trace.clocks[file], found.at
    time = clock.times(found.ticks)
    low, high = trace.recording.window.span
    mapped = np.append(shared.numbers[process], np.int32(-1))[func]
    kept = np.flatnonzero(good & (mapped >= 0) & (time >= low) & (time <= high))
    began = found.ticks[kept]
    back = np.flatnonzero(found.type[kept] == RETURNED)
    began[back] -= words.ravel()[at[kept[back]] + 2]
    chunk, time = found.row[kept], time[kept]
    places = place[chunk] + 8 * (at[kept] - chunk * words.shape[1])
    begin = np.minimum(clock.times(began), time)
    columns = (thread[chunk], mapped[kept], time, begin, np.full(len(kept), file), places)
    wrong = len(np.unique(found.row[~good]))
    return np.stack([column.astype(np.int64) for column in columns]), wrong


def _of(trace: Trace, shared: SharedPoints, file: int) -> Iterator[NDArray[np.int64]]:
    """Read the columns of a file's chunks, some at a time, int64[COLUMNS, m]."""
    chunks, probes = trace.chunks, shared.all_told[int(trace.processes[file])]
    for rows, words in trace.batches.of_file(file, BATCH_WORDS):
        behind = words_behind(probes, words)
        found = decode(words, chunks.words[rows], chunks.base[rows], behind)
        columns, wrong = columns_of(
            trace,
            shared,
            file,
            found,
            words,
            thread=chunks.thread[rows],
            place=chunks.offset[rows],
        )
        trace.batches.torn += found.torn + wrong
        yield columns
