# SPDX-License-Identifier: MIT
"""Reading chunks, a few at a time, and handing out their events thread by thread."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.ahead import ahead
from ftpatch.trace.chunks import MAGIC, Chunks
from ftpatch.trace.clock import Clock
from ftpatch.trace.decode import BLOCK, Decoded, Event, decode
from ftpatch.trace.word_file import HEADER, WordFile, read_head, read_words

__all__ = ["BATCH_WORDS", "Batch", "Batches", "batch_of"]

BATCH_WORDS = 1 << 17
"""Words decoded at a time: more columns than that leave the caches."""
WITH_VALUE = (Event.ENTRY_FROM, Event.EXIT_VALUE)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """n events, grouped by thread and in order within each. ``thread`` int32[n], ``time`` int64[n]
    (nanoseconds since the start), ``type`` uint8[n], ``func`` uint32[n]; ``value`` uint64[n] (0 if
    none), ``args`` int32[n]: row of ``arguments``, uint64[m, 6], or -1; all three None if no event
    has any. ``until`` as in Rows."""

    thread: NDArray[np.int32]
    time: NDArray[np.int64]
    type: NDArray[np.uint8]
    func: NDArray[np.uint32]
    value: NDArray[np.uint64] | None
    args: NDArray[np.int32] | None
    arguments: NDArray[np.uint64] | None
    until: int

    def __len__(self) -> int:
        return len(self.thread)


class Batches:
    """All events of all traces: ``files`` are theirs, ``rings`` the numbers of those that may be
    overwritten meanwhile. ``torn`` counts chunks that end in an invalid event, ``overrun`` those
    that were overwritten since they were found. Raises InputError if a file cannot be read."""

    def __init__(
        self,
        files: Sequence[WordFile],
        chunks: Chunks,
        times: Sequence[Clock],
        rings: Collection[int] = (),
    ) -> None:
        self._files, self._chunks, self._clocks, self._rings = files, chunks, times, rings
        self._gone: set[int] = set()
        self.torn = 0
        longest = int(chunks.words.max()) if len(chunks) else 0
        self._width = _width(longest)
        self._step = max(1, BATCH_WORDS // self._width)

    def __len__(self) -> int:
        return -(-len(self._chunks) // self._step)

    def __iter__(self) -> Iterator[Batch]:
        """Read the next batch while the current one is processed."""
        self.torn = 0
        return ahead(self._all())

    def fill(self, row: NDArray[np.uint64], chunk: int, skip: int = 0) -> None:
        """Fill a zeroed row of words, uint64[n], from a chunk, starting at its word ``skip``."""
        words = min(int(self._chunks.words[chunk]) - skip, len(row))
        number = int(self._chunks.file[chunk])
        read_words(self._files[number], int(self._chunks.offset[chunk]) + skip * 8, row[:words])
        if number in self._rings and not self._is_there(chunk):
            row.fill(0)
            self._gone.add(chunk)

    @property
    def overrun(self) -> int:
        """Number of chunks of rings that were overwritten before they were read."""
        return len(self._gone)

    def _is_there(self, chunk: int) -> bool:
        """Test whether a chunk is still the one that was found: its mark goes before all else."""
        chunks = self._chunks
        file = self._files[int(chunks.file[chunk])]
        (found,) = read_head(file, int(chunks.offset[chunk]) - HEADER.itemsize)
        return bool(
            found["magic"] == MAGIC
            and found["base"] == chunks.base[chunk]
            and found["number"] == chunks.number[chunk]
        )

    def _opened(self, index: NDArray[np.intp]) -> NDArray[np.int64]:
        """The frames that are open where chunks begin, as in Chunks, now that some may be gone."""
        chunks, opened = self._chunks, self._chunks.open[index]
        if not self._gone:
            return opened
        gone = np.array(sorted(self._gone))
        for row, chunk in enumerate(index.tolist()):
            thread, number = chunks.thread[chunk], chunks.number[chunk]
            before = (chunks.thread[gone] == thread) & (chunks.number[gone] == number - 1)
            if before.any() and chunk not in self._gone:
                opened[row] = chunks.began[chunk]
        return opened

    def words(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint64]]]:
        """Yield the numbers of some chunks, thread by thread, and their words, uint64[k, n], until
        the next ones are asked for. Their events are those of a batch, if no chunk is longer than
        BATCH_WORDS."""
        room = np.empty((self._step, self._width), np.uint64)
        for first in range(0, len(self._chunks), self._step):
            index = self._together(first)
            words = room[: len(index)]
            words.fill(0)
            for row, chunk in zip(words, index.tolist(), strict=True):
                self.fill(row, chunk)
            yield index, words

    def of_file(
        self, file: int, most: int = BATCH_WORDS
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.uint64]]]:
        """Yield the numbers of some chunks of a file, and their words, uint64[k, n]: ``most`` at
        a time, or one chunk."""
        mine = np.flatnonzero(self._chunks.file == file)
        width = _width(int(self._chunks.words[mine].max(initial=0)))
        step = max(1, most // width)
        for first in range(0, len(mine), step):
            index = mine[first : first + step]
            words = np.zeros((len(index), width), np.uint64)
            for row, chunk in zip(words, index.tolist(), strict=True):
                self.fill(row, chunk)
            yield index, words

    def _together(self, first: int) -> NDArray[np.intp]:
        """The chunks of a batch, from the first on, thread by thread."""
        index = np.arange(first, min(first + self._step, len(self._chunks)))
        return index[np.argsort(self._chunks.thread[index], kind="stable")]

    def _all(self) -> Iterator[Batch]:
        for first in range(0, len(self._chunks), self._step):
            after = first + self._step
            later = self._chunks.start[after : after + 1].tolist()
            index = self._together(first)
            if self._width > BATCH_WORDS:
                yield from self._in_pieces(int(index[0]), later)
                continue
            words = np.zeros((len(index), self._width), np.uint64)
            for row, chunk in zip(words, index.tolist(), strict=True):
                self.fill(row, chunk)
            found = decode(words, self._chunks.words[index], self._chunks.base[index])
            yield self._batch(words, index, found, self._opened(index), later)

    def _in_pieces(self, chunk: int, later: list[int]) -> Iterator[Batch]:
        """Split a chunk that is too large to decode at once."""
        index = np.array([chunk])
        base, opened = self._chunks.base[index], self._chunks.open[index]
        at, end = 0, int(self._chunks.words[chunk])
        while at < end:
            words = np.zeros((1, BATCH_WORDS), np.uint64)
            self.fill(words[0], chunk, at)
            found = decode(words, np.array([min(BATCH_WORDS, end - at)]), base)
            batch = self._batch(words, index, found, opened, later)
            last = [int(batch.time.max())] if len(batch) else []
            at += int(found.used[0])
            going_on = not found.ended[0] and found.used[0] > 0
            until = min([*later, *last]) if going_on and (later or last) else batch.until
            yield replace(batch, until=until)
            if not going_on:
                return
            base, opened = found.base, np.array([-1])

    def _batch(
        self,
        words: NDArray[np.uint64],
        index: NDArray[np.intp],
        found: Decoded,
        opened: NDArray[np.int64],
        later: list[int],
    ) -> Batch:
        self.torn += found.torn
        return batch_of(
            words,
            found,
            self._times(index, found.row, found.ticks),
            thread=self._chunks.thread[index],
            opened=opened,
            start=self._times(index, np.arange(len(index)), self._chunks.base[index]),
            until=later[0] if later else int(np.iinfo(np.int64).max),
        )

    def _times(
        self, index: NDArray[np.intp], row: NDArray[np.intp], ticks: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        if len(self._clocks) == 1:
            return self._clocks[0].times(ticks)
        file = self._chunks.file[index][row]
        out = np.zeros(len(row), np.int64)
        for number in np.unique(file).tolist():
            out[file == number] = self._clocks[number].times(ticks[file == number])
        return out


def _width(longest: int) -> int:
    """Words of a row that has room for a chunk of so many."""
    return -(-max(longest, 1) // BLOCK) * BLOCK


def batch_of(
    words: NDArray[np.uint64],
    found: Decoded,
    time: NDArray[np.int64],
    *,
    thread: NDArray[np.int32],
    opened: NDArray[np.int64],
    start: NDArray[np.int64],
    until: int,
) -> Batch:
    """Make a batch of the events ``found`` in ``words``, uint64[k, n], of which ``time`` int64[m]
    is each one's. Of each chunk: ``thread`` int32[k], ``opened`` int64[k], the frames that are open
    at ``start`` int64[k] if chunks are missing before it, else -1. Times in nanoseconds."""
    value, args, arguments = _values(words.ravel(), found)
    batch = Batch(
        thread=thread[found.row],
        time=time,
        type=found.type,
        func=found.func,
        value=value,
        args=args,
        arguments=arguments,
        until=until,
    )
    gaps = np.flatnonzero(opened >= 0)
    if not len(gaps):
        return batch
    missing: dict[str, Any] = {
        "thread": thread[gaps],
        "time": start[gaps],
        "type": Event.SYNC,
        "func": opened[gaps],
    }
    if batch.value is not None:
        missing |= {"value": 0, "args": -1}
    where = np.searchsorted(found.row, gaps)
    columns: dict[str, Any] = {
        name: np.insert(getattr(batch, name), where, new) for name, new in missing.items()
    }
    return replace(batch, **columns)


Values = tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.uint64]] | tuple[None, None, None]


def _values(flat: NDArray[np.uint64], found: Decoded) -> Values:
    """Gather the words that follow the events' first ones."""
    if not among(found.type, (*WITH_VALUE, Event.ENTRY_ARGS)).any():
        return None, None, None
    value = np.zeros(len(found.at), np.uint64)
    args = np.full(len(found.at), -1, np.int32)
    for kind in WITH_VALUE:
        rows = found.type == kind
        value[rows] = flat[found.at[rows] + 1]
    rows = np.flatnonzero(found.type == Event.ENTRY_ARGS)
    args[rows] = np.arange(len(rows))
    return value, args, flat[found.at[rows][:, None] + np.arange(1, 7)]
