# SPDX-License-Identifier: MIT
"""Probe events of all traces, merged by time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.layout import constants
from ftpatch.probe.fetched import comm_table, fetched
from ftpatch.probe.read_hist import read_hists
from ftpatch.probe.trace_probes import Probe, read_probes
from ftpatch.trace.address_names import Places
from ftpatch.trace.decode import BLOCK, FUNC, FUNC_SHIFT, TYPE, Event, decode
from ftpatch.trace.hits import Group, HistTable, Point
from ftpatch.trace.reader import Trace

__all__ = ["Hits", "read_hits"]

HIT, RETURNED = constants["EVENT_HIT"], constants["EVENT_RETURNED"]
BATCH_WORDS = 1 << 18
"""Words decoded at a time."""
GAP = 1 << 16
"""Minimum gap in bytes between two events for separate reads."""


class Hits:
    """The Hits of reports, read when they are shown. ``at`` int64[n]: file offset of each event's
    first word."""

    def __init__(self, trace: Trace, told: list[list[Probe]]) -> None:
        self.trace, self._told = trace, told
        self.told: list[list[Point]] = [[*probes] for probes in told]
        self._comms = comm_table(trace.recording.comms)
        self._probes: list[Probe] = []
        self.header: list[int] = []
        self.numbers: list[NDArray[np.int32]] = []
        self._merge()
        parts = [np.empty((5, 0), np.int64)]
        parts += [found for file in range(len(told)) for found in self._of(file)]
        self.points: list[Point] = [*self._probes]
        thread, point, *rest = np.concatenate(parts, axis=1)
        order = np.argsort(rest[0], kind="stable")
        self.thread = thread.astype(np.int32)[order]
        self.point = point.astype(np.int32)[order]
        self.time, self.begin, self.at = (column[order] for column in rest)

    @cached_property
    def hists(self) -> list[HistTable]:
        """The histograms of the probes that are selected."""
        chosen = {
            id(probe): self.points[number]
            for probes, numbers in zip(self._told, self.numbers, strict=True)
            for probe, number in zip(probes, numbers.tolist(), strict=True)
            if number >= 0
        }
        tables = read_hists(self.trace, self._told)
        points = [chosen.get(id(table.point)) for table in tables]
        pairs = zip(tables, points, strict=True)
        return [replace(table, point=point) for table, point in pairs if point]

    def __len__(self) -> int:
        return len(self.time)

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep only the hits of a mask, bool[n]."""
        for name in ("thread", "point", "time", "begin", "at"):
            setattr(self, name, getattr(self, name)[mask])

    def group(self, number: int, rows: NDArray[np.intp]) -> Group:
        """Read some events of one probe, with their values."""
        probe, thread = self._probes[number], self.thread[rows]
        words = self.words(rows, probe.before + probe.words)
        values = fetched(probe, words[:, probe.before :], self._comms[thread])
        return Group(
            point=probe,
            header=self.header[number],
            thread=thread,
            owner=self.trace.recording.owner[thread],
            time=self.time[rows],
            duration=self.time[rows] - self.begin[rows],
            caller=words[:, 0] if probe.returns else np.empty(0, np.uint64),
            values=tuple(values),
        )

    def words(self, rows: NDArray[np.intp], count: int) -> NDArray[np.uint64]:
        """Read the words after the first one of each event, uint64[m, count]; zeros where the file
        has shrunk since. Raises InputError if it cannot be read."""
        out = np.zeros((len(rows), count), np.uint64)
        file = self.trace.recording.owner[self.thread[rows]]
        for number in np.unique(file).tolist() if count else ():
            mine = np.flatnonzero(file == number)
            mine = mine[np.argsort(self.at[rows[mine]], kind="stable")]
            at = self.at[rows[mine]] + 8
            spans = np.flatnonzero(np.diff(at) > GAP) + 1
            for part, place in zip(np.split(mine, spans), np.split(at, spans), strict=True):
                size = int(place[-1] - place[0]) + 8 * count
                held = np.frombuffer(self._read(number, size, int(place[0])), "<u8")
                index = (place - place[0]) // 8
                out[part] = held[index[:, None] + np.arange(count)]
        return out

    def _read(self, file: int, size: int, at: int) -> bytes:
        path, fd = self.trace.files[file]
        try:
            return os.pread(fd, size, at).ljust(size, b"\0")
        except OSError as error:
            raise InputError(path, f"cannot read: {error.strerror}") from None

    def _merge(self) -> None:
        known: dict[tuple[object, ...], int] = {}
        recording = self.trace.recording
        window, places = recording.window, Places(recording, str)
        for file, probes in enumerate(self._told):
            numbers = np.full(len(probes), -1, np.int32)
            program = recording.program[file]
            for number, probe in enumerate(probes):
                function = places.function(file, probe)[0]
                symbol = recording.program_of(file).symbols.get(function, function)
                names = dict.fromkeys([probe.name, probe.definition.name, function, symbol])
                if window.globs and not window.names_match(*names):
                    continue
                same = known.setdefault((program, replace(probe, missed=0)), len(self._probes))
                numbers[number] = same
                if same < len(self._probes):
                    missed = self._probes[same].missed + probe.missed
                    self._probes[same] = replace(probe, missed=missed)
                else:
                    self._probes.append(probe)
                    self.header.append(file)
            self.numbers.append(numbers)

    def _of(self, file: int) -> Iterator[NDArray[np.int64]]:
        """Read the columns of a file's chunks, some at a time, int64[5, m]."""
        chunks = self.trace.chunks
        mine = np.flatnonzero(chunks.file == file)
        longest = int(chunks.words[mine].max()) if len(mine) else 0
        width = -(-max(longest, 1) // BLOCK) * BLOCK
        step = max(1, BATCH_WORDS // width)
        for first in range(0, len(mine), step):
            yield self._decoded(file, mine[first : first + step], width)

    def _decoded(self, file: int, rows: NDArray[np.intp], width: int) -> NDArray[np.int64]:
        trace, chunks, probes = self.trace, self.trace.chunks, self._told[file]
        words = np.zeros((len(rows), width), np.uint64)
        for row, chunk in zip(words, rows.tolist(), strict=True):
            trace.batches.fill(row, chunk)
        # One extra, non-existent probe stands for invalid numbers.
        sizes = np.array([*(one.before + one.words for one in probes), 0], np.uint8)
        types = np.array([*(RETURNED if one.returns else HIT for one in probes), 0], np.uint8)
        low = words.astype(np.uint32)
        number = np.minimum((low >> np.uint32(FUNC_SHIFT)) & np.uint32(FUNC), len(probes))
        kind = low & np.uint32(TYPE)
        behind = np.where((kind == HIT) | (kind == RETURNED), sizes[number], kind == Event.TIME)
        length, base = chunks.words[rows], chunks.base[rows]
        found = decode(words, length, base, behind.astype(np.uint8))
        func = np.minimum(found.func, len(probes)).astype(np.intp)
        good = found.type == types[func]
        trace.batches.torn += found.torn + len(np.unique(found.row[~good]))
        clock, at = trace.clocks[file], found.at
        time = clock.times(found.ticks)
        low_time, high_time = trace.recording.window.span
        mapped = np.append(self.numbers[file], np.int32(-1))[func]
        kept = np.flatnonzero(good & (mapped >= 0) & (time >= low_time) & (time <= high_time))
        began = found.ticks[kept]
        back = np.flatnonzero(found.type[kept] == RETURNED)
        began[back] -= words.ravel()[at[kept[back]] + 2]
        chunk, time = found.row[kept], time[kept]
        place = chunks.offset[rows][chunk] + 8 * (at[kept] - chunk * width)
        begin = np.minimum(clock.times(began), time)
        columns = (chunks.thread[rows][chunk], mapped[kept], time, begin, place)
        return np.stack([column.astype(np.int64) for column in columns])


def read_hits(trace: Trace) -> Hits:
    """Read the events of all traces. Raises InputError for a corrupt header."""
    return Hits(trace, [read_probes(source.fd, source.header) for source in trace.sources])
