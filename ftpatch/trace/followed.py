# SPDX-License-Identifier: MIT
"""Traces that are read while they are being written, look by look.

Threads write to chunks of their own, so that the events of one are known before earlier ones of
another are. One thing is sure: an event that was there at one look had happened by then, and so had
all before it, which the next look finds. Until that look, events wait. One that a thread has
not stored by then, since it was preempted between reading the clock and storing, comes late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.trace.clock import clocks
from ftpatch.trace.decode import BLOCK, Decoded
from ftpatch.trace.growing import Growing
from ftpatch.trace.living import living_threads
from ftpatch.trace.open_chunks import CHUNK, Behind, OpenChunks, Part
from ftpatch.trace.reader import Opened, OpenFile, processes_in
from ftpatch.trace.rotated import is_rotated, runs_of
from ftpatch.trace.source import Recording
from ftpatch.trace.window import Window
from ftpatch.trace.word_file import HEADER

__all__ = ["Followed", "Pace"]

NEVER = int(np.iinfo(np.int64).max)
OFTEN, MANY = 16, 64
"""Looks from one time to the next that ended threads are looked for, and how many there must be."""
LOWEST = int(np.iinfo(np.int64).min)


class Pace(Protocol):
    """The world outside of traces that are followed: time, writers, and new files."""

    @property
    def is_over(self) -> bool:
        """True if nobody wants to see more."""

    def pause(self, *, idle: bool) -> None:
        """Wait until the next look: all that is known has been told. ``idle``: nothing has come at
        the last two looks."""

    def is_written(self, source: OpenFile) -> bool:
        """Test whether a process may still write to a trace."""

    def more(self, held: Sequence[OpenFile], *, last: bool) -> list[OpenFile]:
        """Open the traces that belong to those ``held`` and have come since; ``last``: nobody
        writes to one of these any more. Raises InputError."""

    def removed(self, source: OpenFile) -> None:
        """Take note that a trace has lost its name; it is read on."""


@dataclass
class _File:
    """A file, and of each thread, by its id and number in a ring, its number here, and that of its
    next chunk. Nobody writes any more to one that is ``ending``; one that is ``over`` has been
    read."""

    growing: Growing
    threads: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    ending: bool = False
    over: bool = False
    removed: bool = False


class Followed(Opened):
    """Traces that are followed until nobody writes to them, or wants more of them. Files, clocks
    and the recording grow meanwhile."""

    def __init__(self, sources: Sequence[OpenFile], window: Window, pace: Pace) -> None:
        """Take them over. Raises InputError."""
        super().__init__(sources)
        self._pace = pace
        self.recording = Recording(headers=[], tids=[], owner=np.empty(0, np.int32), window=window)
        self._runs: list[list[int]] = []
        self._update_processes()
        self._chunks = OpenChunks(self.files, self.clocks)
        self._newest = LOWEST  # time at which a chunk is known to have begun (nanoseconds)
        self._files: list[_File] = []
        for number, source in enumerate(self.sources):
            self._files.append(self._file(number, source))
        self._begun = False
        self._find_chunks(range(len(self.sources)))  # so that threads are known
        self._begun = True

    def parts(self, behind: Behind) -> Iterator[Part]:
        """Yield new events as they come, and after each look, if some may have waited for it, a
        part without any. Raises InputError for a file that was truncated, when all that was there
        is told; UsageError for a thread that none of them has."""
        seen, waited, failed = LOWEST, False, None
        over = ended = False
        looks, gone = 0, np.empty(0, bool)
        while not (over or ended):
            over, waits = self._pace.is_over, False
            try:
                ended = self._look(over=over)
                cap = max(seen, self._newest)
                for part in self._chunks.parts(behind, NEVER if ended else cap + 1):
                    self._read_headers(np.unique(part.file).tolist())
                    seen, waits = max(seen, int(part.time.max(initial=LOWEST))), True
                    yield part
                    if self._pace.is_over and not over:
                        over = True  # do not go on with what there may be much of
                        break
            except InputError as error:
                failed = error
                break
            self._end_files()
            looks += 1
            self._chunks.leave(gone)  # what they had stored before they ended has been read
            gone = self._ended() if looks % OFTEN == 0 else gone[:0]
            if not (over or ended):
                if waits or waited:
                    yield _nothing(cap + 1)
                self._pace.pause(idle=not (waits or waited))
                waited = waits
        self.torn += self._chunks.torn
        self.damaged = sum(one.growing.damaged for one in self._files)
        self.overrun += self._chunks.overrun
        for number, one in enumerate(self._files):
            one.growing.tell_losses()
            self.headers[number] = one.growing.header
        self._update_processes()
        yield _nothing(NEVER)
        if failed is not None:
            raise failed
        self.require_threads()

    def _look(self, *, over: bool) -> bool:
        """Find new files and chunks; return whether no more can come."""
        going_on = [number for number, one in enumerate(self._files) if not one.over]
        unwritten = [n for n in going_on if not self._pace.is_written(self.sources[n])]
        ended = unwritten == going_on and not over
        new = [] if over else self._pace.more(self.sources, last=ended)
        for source in new:
            self._add_file(source)
        living = [number for number, one in enumerate(self._files) if not one.over]
        for number in living:
            self._files[number].ending = number in unwritten
        self._find_chunks(living)
        return ended and not new

    def _find_chunks(self, numbers: Sequence[int]) -> None:
        """Find the new chunks of files. Of a process that went on in another file, the last one is
        looked at first: what threads had before their chunks there is in the others by then."""
        found = dict[int, NDArray[np.void]]()
        for number in reversed(numbers):
            one = self._files[number]
            self._read_headers([number])
            found[number] = one.growing.chunks()
            if one.ending:
                found[number] = np.concatenate([found[number], one.growing.others()])
                self._chunks.recall(number)
        for number in numbers:
            if len(found[number]):
                self._add_chunks(number, found[number])
                begun = self.clocks[number].times(found[number]["base"])
                self._newest = max(self._newest, int(begun.max()))

    def _end_files(self) -> None:
        """Be done with the files that nobody wrote to when this look began."""
        for number, one in enumerate(self._files):
            if one.ending and not one.over:
                one.over = True
                self._chunks.drop(number)

    def _ended(self) -> NDArray[np.bool_]:
        """Find threads that have ended, bool[t], if there is much to be looked at."""
        gone = np.zeros(len(self.recording.tids), bool)
        threads = np.unique(self._chunks.threads)
        if len(threads) <= MANY:
            return gone
        owners = self.recording.owner[threads]
        for number in np.unique(owners).tolist():
            file = self._runs[number][-1]
            living = living_threads(OpenFile(self.sources[file].fd, self.headers[file]))
            if living is not None:
                mine = threads[owners == number]
                tids = [self.recording.tids[thread] for thread in mine.tolist()]
                gone[mine] = [tid not in living for tid in tids]
        return gone

    def _add_file(self, source: OpenFile) -> None:
        self.sources.append(source)
        self.headers.append(source.header)
        self.clocks.append(clocks(self.headers)[-1])
        self.files.append(source.words)
        self._update_processes()
        self._files.append(self._file(len(self.headers) - 1, source))
        self.recording.name(self._process(len(self.headers) - 1))

    def _file(self, number: int, source: OpenFile) -> _File:
        """A file; its threads are those of its process, which may have others."""
        first = self._runs[self._process(number)][0]
        if first < number:
            return _File(Growing(source), self._files[first].threads)
        return _File(Growing(source))

    def _update_processes(self) -> None:
        self._runs = runs_of(self.headers)
        self.recording.headers = processes_in(self.headers)

    def _process(self, number: int) -> int:
        """The number of a file's process."""
        return next(row for row, run in enumerate(self._runs) if number in run)

    def _read_headers(self, numbers: list[int]) -> None:
        """Read headers as they are now: libraries are told there before they are traced."""
        for number in numbers:
            one = self._files[number]
            changed = one.growing.look()
            if self.headers[number] != one.growing.header:
                self.headers[number] = one.growing.header
                self._update_processes()
            if changed:
                self.recording.name(self._process(number))
            if one.growing.is_removed and not one.removed and not is_rotated(one.growing.header):
                one.removed = True
                self._pace.removed(self.sources[number])

    def _add_chunks(self, number: int, found: NDArray[np.void]) -> None:
        one, recording = self._files[number], self.recording
        new = np.zeros(len(found), CHUNK)
        thread, gap = np.zeros(len(found), np.int32), np.zeros(len(found), bool)
        known = len(recording.tids)
        columns = (found[name].tolist() for name in ("tid", "thread", "number"))
        for row, (tid, serial, count) in enumerate(zip(*columns, strict=True)):
            place, following = one.threads.get((tid, serial), (-1, 0))
            if one.growing.header.is_ring and (place >= 0 or self._begun):
                self.overrun += max(count - following, 0)
            if place < 0 or count < following:  # another thread has got the number
                place, following = len(recording.tids), 0
                recording.tids.append(tid)
            one.threads[tid, serial] = place, count + 1
            thread[row], gap[row] = place, count != following
        owners = np.full(len(recording.tids) - known, self._process(number), np.int32)
        recording.owner = np.concatenate([recording.owner, owners])
        room = (one.growing.header.chunk_size - HEADER.itemsize) // 8
        new["file"], new["thread"], new["room"] = number, thread, room
        new["at"] = found["at"] + HEADER.itemsize
        new["open"], new["began"] = np.where(gap, found["open"], -1), found["open"]
        new["number"] = found["number"]
        new["base"] = new["last"] = new["first"] = found["base"]
        wanted = recording.window.tids
        if wanted:
            new = new[np.isin(found["tid"], list(wanted))]
        self._chunks.add(new, len(recording.tids), ring=one.growing.header.is_ring)


def _nothing(until: int) -> Part:
    """A part without events."""
    none = np.empty(0, np.intp)
    found = Decoded(
        row=none,
        type=np.empty(0, np.uint8),
        func=np.empty(0, np.uint32),
        ticks=np.empty(0, np.uint64),
        at=none,
        base=np.empty(0, np.uint64),
        used=none,
        ended=np.empty(0, bool),
        torn=0,
    )
    return Part(
        words=np.empty((0, BLOCK), np.uint64),
        found=found,
        time=np.empty(0, np.int64),
        file=np.empty(0, np.int32),
        thread=np.empty(0, np.int32),
        place=np.empty(0, np.int64),
        start=np.empty(0, np.int64),
        open=np.empty(0, np.int64),
        until=until,
    )
