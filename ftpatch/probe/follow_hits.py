# SPDX-License-Identifier: MIT
"""Probe events of traces that are being written, as they come."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.read_hits import COLUMNS, Hits, columns_of, words_behind
from ftpatch.probe.read_stacks import HitStacks
from ftpatch.probe.shared_points import SharedPoints, probes_of
from ftpatch.trace.followed import Followed
from ftpatch.trace.held_columns import HeldColumns
from ftpatch.trace.open_chunks import Part

__all__ = ["FollowedHits"]


class FollowedHits(Hits):
    """The Hits of reports, all of which are still to come."""

    def __init__(self, trace: Followed) -> None:
        """Read the probes. Raises InputError for a corrupt header."""
        self._followed = trace
        none = np.empty((COLUMNS, 0), np.int64)
        super().__init__(trace, self._probes_now(), none, HitStacks(trace))

    def parts(self) -> Iterator[Hits]:
        """New hits as they come, by time."""
        held = HeldColumns(COLUMNS, time=2)
        for part in self._followed.parts(self._behind):
            for columns in self._columns(part):
                held.add(columns)
            ready = held.ready(part.until)
            if ready.shape[1]:
                yield Hits(self._followed, self._shared, ready, self.stacks)
        none = np.empty((COLUMNS, 0), np.int64)
        super().__init__(self._followed, self._probes_now(), none, self.stacks)

    def _probes_now(self) -> SharedPoints:
        """The probes of all processes, with what they have missed by now."""
        shared = SharedPoints(self._followed.recording)
        self._add(shared)
        return shared

    def _add(self, shared: SharedPoints) -> None:
        """Add the processes that are not there yet."""
        trace = self._followed
        for run in trace.runs[len(shared.all_told) :]:
            shared.add(probes_of([trace.sources[number] for number in run]))

    def _behind(
        self, words: NDArray[np.uint64], file: NDArray[np.int32]
    ) -> NDArray[np.uint8] | NDArray[np.uint16]:
        self._add(self._shared)
        process = self._followed.processes[file]
        numbers = np.unique(process).tolist()
        parts = [words_behind(self._shared.all_told[n], words[process == n]) for n in numbers]
        out = np.zeros(words.shape, np.result_type(np.uint8, *parts))
        for number, part in zip(numbers, parts, strict=True):
            out[process == number] = part
        return out

    def _columns(self, part: Part) -> Iterator[NDArray[np.int64]]:
        """The columns of each trace's hits, int64[COLUMNS, m]."""
        for number in np.unique(part.file).tolist():
            columns, wrong = columns_of(
                self._followed,
                self._shared,
                number,
                part.found_in(number),
                part.words,
                thread=part.thread,
                place=part.place,
            )
            self._followed.torn += wrong
            yield columns
