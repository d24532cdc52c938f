# SPDX-License-Identifier: MIT
"""Chunks that events are still added to, and the events that are new in them.

The first word of an event is stored last, so that one that is there is whole; but nothing says in
which order the words of a chunk are copied to us. So they are read twice: of an event that begins
with a word that was there the first time, all is there the second time.

    | event | event | event | 0 ...
                      ^ read  ^ where none began the first time
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.trace.batches import BATCH_WORDS
from ftpatch.trace.chunks import MAGIC
from ftpatch.trace.clock import Clock
from ftpatch.trace.decode import BLOCK, TYPE, Decoded, decode
from ftpatch.trace.word_file import HEADER, WordFile, read_head, read_words

__all__ = ["CHUNK", "Behind", "OpenChunks", "Part"]

CHUNK = [
    *((name, "i4") for name in ("file", "thread", "idle")),
    *((name, "i8") for name in ("at", "room", "read", "open", "tail", "number", "began")),
    *((name, "u8") for name in ("base", "last", "mark", "first")),
    ("ring", "?"),
]
"""A chunk, the thread's ``number``-th: the file offset of its first event ``at``, the words that it
has ``room`` for, and those ``read``; ``open`` frames if chunks are missing before it, else -1, and
those that there were when it ``began``; ticks: the ``base`` of what follows, the ``first`` one, and
the ``last`` event's, of which the first word is ``mark``, in the last ``tail`` words that were
read; looks that it has been ``idle`` for; whether it is of a ``ring``, and may be overwritten."""
MAX_BEHIND = 1 << 10
"""Maximum number of words after an event's first one: the longest are those with stacks."""
PATIENCE = 2
"""Looks after which nothing more is expected in a chunk whose thread has another one."""
EVENTS = ("row", "type", "func", "ticks", "at")
"""The columns of events in Decoded."""
Behind = Callable[
    [NDArray[np.uint64], NDArray[np.int32]], NDArray[np.uint8] | NDArray[np.uint16] | None
]
"""Returns how many words would follow each of some words, uint[k, n], where it began an event;
of each chunk the file, int32[k]. None: as many as follow calls."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """n new events of k chunks, grouped by thread and in order within each. ``words`` uint64[k, m],
    and what was ``found`` in them; ``time`` int64[n], nanoseconds since the start. Of each chunk
    ``file``, ``thread`` int32[k]; ``place`` int64[k]: file offset of the words; ``start`` int64[k]:
    nanoseconds at its base; ``open`` as in Chunks. ``until``: a lower bound for the times of all
    later parts, but for events that come too late."""

    words: NDArray[np.uint64]
    found: Decoded
    time: NDArray[np.int64]
    file: NDArray[np.int32]
    thread: NDArray[np.int32]
    place: NDArray[np.int64]
    start: NDArray[np.int64]
    open: NDArray[np.int64]
    until: int

    def __len__(self) -> int:
        return len(self.time)

    def found_in(self, file: int) -> Decoded:
        """Select the events of one file."""
        found, mine = self.found, (self.file == file)[self.found.row]
        columns = {name: getattr(found, name)[mine] for name in EVENTS}
        return replace(found, **columns)


class OpenChunks:
    """The chunks of several ``files``, with their ``clocks``: both may get
    more. ``torn`` counts those that end in an invalid event, ``overrun`` those that were
    overwritten before they were read to their end."""

    def __init__(self, files: Sequence[WordFile], clocks: Sequence[Clock]) -> None:
        self._files, self._clocks = files, clocks
        self._chunks = np.zeros(0, CHUNK)
        self._settled = np.zeros(0, CHUNK)
        self._newest = np.zeros(0, np.int64)
        self._ends: list[tuple[int, int, bytes]] | None = None
        self._broken: set[int] = set()  # threads whose next chunk does not follow
        self.torn = self.overrun = 0

    def add(self, new: NDArray[np.void], threads: int, *, ring: bool = False) -> None:
        """Add chunks, CHUNK[n], each after those that its thread had before; ``threads``: how many
        there are now. Those of a ring take the places of others."""
        self._newest = np.pad(self._newest, (0, threads - len(self._newest)))
        np.maximum.at(self._newest, new["thread"], new["number"])
        if ring:
            new["ring"] = True
            files = self._chunks["file"]
            gone = np.isin(files, new["file"]) & np.isin(self._chunks["at"], new["at"])
            settled = self._settled
            self._settled = settled[
                ~(np.isin(settled["file"], new["file"]) & np.isin(settled["at"], new["at"]))
            ]
            self._break(np.flatnonzero(gone))
            self._chunks = self._chunks[~gone]
            for row, thread in enumerate(new["thread"].tolist()):
                if thread in self._broken:
                    self._broken.remove(thread)
                    new["open"][row] = new["began"][row]
        self._chunks = np.concatenate([self._chunks, new])
        self._ends = None

    def _break(self, gone: NDArray[np.intp]) -> None:
        """Take note that some chunks were overwritten: what follows in their threads does not
        follow what was read."""
        chunks = self._chunks
        for row in gone.tolist():
            one = chunks[row]
            later = (chunks["thread"] == one["thread"]) & (chunks["number"] > one["number"])
            if not later.any():
                self._broken.add(int(one["thread"]))
                continue
            after = np.flatnonzero(later)
            after = after[np.argmin(chunks["number"][after])]
            if not chunks["read"][after]:
                chunks["open"][after] = chunks["began"][after]

    def _are_gone(self, chunks: NDArray[np.void]) -> NDArray[np.bool_]:
        """Find chunks of rings that are others by now, bool[n]: the mark goes before all else."""
        out = np.zeros(len(chunks), bool)
        for row in np.flatnonzero(chunks["ring"]).tolist():
            one = chunks[row]
            (found,) = read_head(self._files[one["file"]], int(one["at"]) - HEADER.itemsize)
            same = found["base"] == one["first"] and found["number"] == one["number"]
            out[row] = found["magic"] != MAGIC or not same
        return out

    @property
    def threads(self) -> NDArray[np.int32]:
        """The threads of the chunks that are looked at."""
        return self._chunks["thread"].copy()

    def leave(self, threads: NDArray[np.bool_]) -> None:
        """Look no more at idle chunks of some threads, bool[t], that have ended; of others, which
        may be more than t, nothing is said."""
        if threads.any():
            ended = np.pad(threads, (0, len(self._newest) - len(threads)))
            self._set_aside(ended[self._chunks["thread"]] & (self._chunks["idle"] >= PATIENCE))

    def recall(self, file: int) -> None:
        """Look at all chunks of a file again: it is not written any more."""
        mine = self._settled["file"] == file
        self._chunks = np.concatenate([self._chunks, self._settled[mine]])
        self._settled = self._settled[~mine]
        self._ends = None

    def drop(self, file: int) -> None:
        """Look at the chunks of a file no more."""
        self._chunks = self._chunks[self._chunks["file"] != file]
        self._ends = None

    def parts(self, behind: Behind, cap: int) -> Iterator[Part]:
        """Yield the new events of all chunks, as far as may be in the order of their times. All
        that happened before ``cap`` (nanoseconds) is there. Raises InputError."""
        if self._is_idle():
            return
        active = self._active()
        while len(active):
            bound = self._bounds(active)
            order = np.argsort(bound, kind="stable")
            active, bound = active[order], bound[order]
            width = -(-int(self._chunks["room"][active].max()) // BLOCK) * BLOCK
            step = max(1, BATCH_WORDS // width)
            part, more = self._read(active[:step], min(width, BATCH_WORDS), behind)
            until = min([cap, *bound[step:].tolist()[:1], *self._bounds(more).tolist()])
            active = np.concatenate([more, active[step:]])
            yield replace(part, until=until)
        self._settle()

    def _is_idle(self) -> bool:
        """Test whether nothing has changed since a look at which nothing had. Raises InputError."""
        if self._ends is None:
            return False
        for file, place, raw in self._ends:
            path, fd, _ = self._files[file]
            try:
                if os.pread(fd, len(raw), place) != raw:
                    return False
            except OSError as error:
                raise InputError(path, f"cannot read: {error.strerror}") from None
        return True

    def _active(self) -> NDArray[np.intp]:
        """Find the chunks with a word where the next event would begin, and those of which the last
        event is another one now. That is looked at again: a signal handler jumped out of the tracer
        when it had been stored, and its place was not counted yet."""
        chunks = self._chunks
        tail, rows = chunks["tail"], np.arange(len(chunks))
        words = np.zeros((len(chunks), int(tail.max(initial=0)) + 1), np.uint64)
        places = chunks["at"] + 8 * (chunks["read"] - tail)
        ends = [*zip(chunks["file"].tolist(), places.tolist(), tail.tolist(), strict=True)]
        for row, (file, place, count) in zip(words, ends, strict=True):
            read_words(self._files[file], place, row[: count + 1])
        other = (tail > 0) & (words[:, 0] != chunks["mark"])
        there = other | (words[rows, tail] != 0) & (chunks["read"] < chunks["room"])
        chunks["read"] -= np.where(other, tail, 0)
        chunks["tail"] = np.where(other, 0, tail)
        chunks["idle"] = np.where(there, 0, chunks["idle"] + 1)
        self._ends = None
        if not there.any():
            pairs = zip(ends, words, strict=True)
            self._ends = [(one[0], one[1], row[: one[2] + 1].tobytes()) for one, row in pairs]
        return np.flatnonzero(there)

    def _bounds(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Lower bounds for the times of what follows in chunks, int64[n]."""
        return self._times(self._chunks["file"][rows], self._chunks["last"][rows])

    def _times(self, file: NDArray[np.int32], ticks: NDArray[np.uint64]) -> NDArray[np.int64]:
        out = np.zeros(len(ticks), np.int64)
        for number in np.unique(file).tolist():
            mine = file == number
            out[mine] = self._clocks[number].times(ticks[mine])
        return out

    def _read(
        self, rows: NDArray[np.intp], width: int, behind: Behind
    ) -> tuple[Part, NDArray[np.intp]]:
        """Read some chunks; also return those of them that more is known to be in."""
        rows = rows[np.lexsort((self._chunks["number"][rows], self._chunks["thread"][rows]))]
        held = self._chunks[rows]
        file, base, place = held["file"], held["base"], held["at"] + 8 * held["read"]
        length = np.minimum(held["room"] - held["read"], width)
        words = self._words(held, place, length, width)
        seen = int(np.flatnonzero(words.any(axis=0)).max(initial=0)) + 1
        width = min(width, -(-(seen + MAX_BEHIND) // BLOCK) * BLOCK)
        there, length = words[:, :width] != 0, np.minimum(length, width)
        whole = self._words(held, place, length, width)
        gone = self._are_gone(held)
        if gone.any():
            self.overrun += int(gone.sum())
            self._chunks["read"][rows[gone]] = held["room"][gone]
            self._break(rows[gone])
            rows, held, there = rows[~gone], held[~gone], there[~gone]
            words, whole = words[~gone], whole[~gone]
            file, base, place, length = file[~gone], base[~gone], place[~gone], length[~gone]
        found = decode(whole, length, base, behind(whole, file), there=there)
        stuck = found.used == 0
        self.torn += int((words[stuck, 0] & np.uint64(TYPE) == 0).sum())
        after = self._chunks
        opened = after["open"][rows]
        after["read"][rows] = np.where(stuck, held["room"], held["read"] + found.used)
        after["base"][rows] = found.base
        after["open"][rows[found.used > 0]] = -1
        self._note_last(rows, found, whole)
        part = Part(
            words=whole,
            found=found,
            time=self._times(file[found.row], found.ticks),
            file=file,
            thread=held["thread"],
            place=place,
            start=self._times(file, base),
            open=np.where(found.used > 0, opened, -1),
            until=0,
        )
        more = ~found.ended & ~stuck & (after["read"][rows] < held["room"])
        return part, rows[more]

    def _note_last(self, rows: NDArray[np.intp], found: Decoded, words: NDArray[np.uint64]) -> None:
        """Note the last event of each chunk."""
        counts = np.bincount(found.row, minlength=len(rows))
        some = np.flatnonzero(counts)
        last = np.cumsum(counts)[some] - 1
        self._chunks["last"][rows[some]] = found.ticks[last]
        self._chunks["mark"][rows[some]] = words.ravel()[found.at[last]]
        begun = found.at[last] - some * words.shape[1]
        self._chunks["tail"][rows[some]] = found.used[some] - begun
        none = np.flatnonzero((counts == 0) & (found.used > 0))  # but a new base
        self._chunks["tail"][rows[none]] = 0

    def _words(
        self,
        chunks: NDArray[np.void],
        place: NDArray[np.int64],
        length: NDArray[np.int64],
        width: int,
    ) -> NDArray[np.uint64]:
        """Read ``length`` words of each chunk from ``place`` on, uint64[k, width]."""
        out = np.zeros((len(chunks), width), np.uint64)
        columns = (chunks["file"].tolist(), place.tolist(), length.tolist())
        for row, file, at, count in zip(out, *columns, strict=True):
            read_words(self._files[file], at, row[:count])
        return out

    def _settle(self) -> None:
        """Look no more at chunks that are full, and those whose threads have others."""
        chunks = self._chunks
        full = chunks["read"] >= chunks["room"]
        if full.any():
            self._chunks, self._ends = chunks[~full], None
        chunks = self._chunks
        old = (chunks["number"] < self._newest[chunks["thread"]]) & (chunks["idle"] >= PATIENCE)
        self._set_aside(old)

    def _set_aside(self, old: NDArray[np.bool_]) -> None:
        if old.any():
            self._settled = np.concatenate([self._settled, self._chunks[old]])
            self._chunks, self._ends = self._chunks[~old], None
