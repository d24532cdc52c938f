# SPDX-License-Identifier: MIT
"""The chunks of a trace, and the thread that wrote each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.layout import constants, offset_of
from ftpatch.trace.clock import Clock
from ftpatch.trace.header import Events, Header
from ftpatch.trace.word_file import HEADER, heads_of

__all__ = [
    "MAGIC",
    "Chunks",
    "are_chunks",
    "are_damaged",
    "are_of",
    "chunk_headers",
    "find_chunks",
    "join_chunks",
    "with_threads",
]

MAGIC = constants["CHUNK_MAGIC"]
"""The first word of a chunk."""
CLEARED = constants["CHUNK_CLEARED"]
LAST = np.iinfo(np.uint64).max
BEGUN = offset_of("trace_chunk", "held")
"""Bytes of it that are zero if it was not begun."""
STEP = 4 << 20
"""Bytes read at a time if chunks are small."""
SMALL = 16 << 10
"""Maximum chunk size for which reading everything beats reading headers one by one (bytes)."""


COLUMNS = ("file", "offset", "words", "thread", "base", "start", "open", "began", "number")


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """n chunks by start time, each thread's in the thread's own order.

    ``file`` int32[n]: which trace. ``offset`` int64[n]: file offset of the first event. ``words``
    int64[n]: 64-bit words present in the file from there to the chunk's end. ``thread`` int32[n]:
    index of the thread. ``base`` uint64[n]: ticks. ``start`` int64[n]: nanoseconds, a lower bound
    for all events of this chunk and of later ones of its thread. ``open`` int64[n]: open frames at
    the start, -1 if the preceding chunk is this one's predecessor and so determines them; ``began``
    int64[n]: the same, as the chunk says. ``number`` int64[n]: of the thread's chunks. ``tid``
    and ``owner`` (int32[t]: which process) of each thread. ``damaged``: the number of invalid
    chunks.
    """

    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    words: NDArray[np.int64]
    thread: NDArray[np.int32]
    base: NDArray[np.uint64]
    start: NDArray[np.int64]
    open: NDArray[np.int64]
    began: NDArray[np.int64]
    number: NDArray[np.int64]
    tid: NDArray[np.int64]
    owner: NDArray[np.int32]
    damaged: int = 0

    def __len__(self) -> int:
        return len(self.file)

    def only(self, rows: NDArray[np.bool_]) -> Chunks:
        """Select the chunks of a mask."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})


def find_chunks(files: Sequence[tuple[int, Header, Clock]]) -> Chunks:
    """Find the chunks of one process's trace: the descriptor, header and clock of each of its
    files. Neither the headers' counts nor a chunk's are trusted: a chunk is where its magic is.
    Raises InputError."""
    parts = [_chunks_in(number, *one) for number, one in enumerate(files)]
    damaged = sum(part[-1] for part in parts)
    parts.sort(key=lambda part: int(part[2]["base"].min(initial=LAST)))
    file, offset, head, words, start = (
        np.concatenate([part[column] for part in parts]) for column in range(5)
    )
    tid, number = head["tid"].astype(np.int64), head["number"].astype(np.int64)
    # Of a ring, a thread may have no first chunk any more: it has a number of its own.
    order, fresh, follows = _threads(tid | head["thread"].astype(np.int64) << 32, number)
    thread = np.cumsum(fresh) - 1
    file, offset, words, head = file[order], offset[order], words[order], head[order]
    tid, number = tid[order], number[order]
    start = _no_later(thread, start[order])
    began = head["open"].astype(np.int64)
    opened = np.where(follows, -1, began)
    order = np.lexsort((np.arange(len(start)), start))
    return Chunks(
        file=file[order],
        offset=offset[order],
        words=words[order],
        thread=thread[order].astype(np.int32),
        base=head["base"].astype(np.uint64)[order],
        start=start[order],
        open=opened[order],
        began=began[order],
        number=number[order],
        tid=tid[fresh],
        owner=np.zeros(int(fresh.sum()), np.int32),
        damaged=damaged,
    )


def _chunks_in(number: int, fd: int, header: Header, clock: Clock) -> _InFile:
    """Chunks of one file, n in the order of their places: the file's number int32[n], the offset of
    the first event int64[n], HEADERs, words int64[n], start times int64[n]; and how many places
    have none that is valid."""
    at, raw = [np.empty(0, np.int64)], [np.empty(0, HEADER)]
    damaged = 0
    try:
        for offsets, found in chunk_headers(fd, header):
            good = are_chunks(found) & are_of(found, header.only)
            damaged += int(are_damaged(found).sum())
            at.append(offsets[good])
            raw.append(found[good])
    except OSError as error:
        raise InputError(header.path, f"cannot read: {error.strerror}") from None
    offset, head = np.concatenate(at) + HEADER.itemsize, np.concatenate(raw)
    payload = header.chunk_size - HEADER.itemsize
    words = np.minimum(payload, np.maximum(header.chunks_end - offset, 0)) // 8
    start = clock.times(head["base"].astype(np.uint64))
    return np.full(len(head), number, np.int32), offset, head, words, start, damaged


_InFile = tuple[
    NDArray[np.int32],
    NDArray[np.int64],
    NDArray[np.void],
    NDArray[np.int64],
    NDArray[np.int64],
    int,
]


def join_chunks(parts: list[Chunks], files: Sequence[Sequence[int]]) -> Chunks:
    """Merge the chunks of several processes' traces by start time; ``files``: the numbers that each
    one's files have now. The owner of a thread is its process."""
    firsts = np.cumsum([0, *(len(part.tid) for part in parts)])
    file = np.concatenate(
        [np.asarray(now, np.int32)[part.file] for part, now in zip(parts, files, strict=True)]
    )
    owner = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.tid) for part in parts])
    start = np.concatenate([part.start for part in parts])
    order = np.argsort(start, kind="stable")
    thread = np.concatenate([part.thread + firsts[i] for i, part in enumerate(parts)])
    return Chunks(
        file=file[order],
        offset=np.concatenate([part.offset for part in parts])[order],
        words=np.concatenate([part.words for part in parts])[order],
        thread=thread[order].astype(np.int32),
        base=np.concatenate([part.base for part in parts])[order],
        start=start[order],
        open=np.concatenate([part.open for part in parts])[order],
        began=np.concatenate([part.began for part in parts])[order],
        number=np.concatenate([part.number for part in parts])[order],
        tid=np.concatenate([part.tid for part in parts]),
        owner=owner,
        damaged=sum(part.damaged for part in parts),
    )


def with_threads(parts: list[Chunks]) -> list[Chunks]:
    """Number the threads of chunks of several kinds of events as those of one recording: by trace,
    tid, and how often a thread of that tid came before."""
    known: dict[tuple[int, int, int], int] = {}
    numbers = []
    for part in parts:
        seen: dict[tuple[int, int], int] = {}
        mine = []
        for owner, tid in zip(part.owner.tolist(), part.tid.tolist(), strict=True):
            nth = seen[owner, tid] = seen.get((owner, tid), -1) + 1
            mine.append(known.setdefault((owner, tid, nth), len(known)))
        numbers.append(np.array(mine, np.int32))
    keys = [*known]
    tid = np.array([tid for _, tid, _ in keys], np.int64)
    owner = np.array([owner for owner, _, _ in keys], np.int32)
    return [
        replace(part, thread=mine[part.thread], tid=tid, owner=owner)
        for part, mine in zip(parts, numbers, strict=True)
    ]


def are_chunks(heads: NDArray[np.void]) -> NDArray[np.bool_]:
    """Test which HEADERs are those of chunks, bool[n]."""
    return np.asarray(heads["magic"] == MAGIC)


def are_of(heads: NDArray[np.void], only: Events | None) -> NDArray[np.bool_]:
    """Test which HEADERs are those of chunks of one kind of events, bool[n]; None: of any."""
    return np.full(len(heads), True) if only is None else np.asarray(heads["held"] == only)


def are_damaged(heads: NDArray[np.void]) -> NDArray[np.bool_]:
    """Test which HEADERs are neither those of chunks nor unused, nor of a ring and about to be used
    again, bool[n]."""
    raw = np.ascontiguousarray(heads).view(np.uint8).reshape(-1, HEADER.itemsize)
    begun = (raw[:, :BEGUN] != 0).any(axis=1)
    return np.asarray(~are_chunks(heads) & (heads["magic"] != CLEARED) & begun)


def chunk_headers(
    fd: int, header: Header, first: int = 0
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """Read the offsets, int64[n], and HEADERs of all chunks from number ``first`` on, skipping
    holes in the file. Raises OSError."""
    size, length = header.chunk_size, header.chunks_end
    step = STEP // size if size <= SMALL else 1
    number, last = first, (length - header.header_size - HEADER.itemsize) // size
    while number <= last:
        at = header.header_size + number * size
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end of the file
                return
            data = at
        skipped = (data - at) // size
        if skipped:
            number += skipped
            continue
        count = min(step, last - number + 1)
        raw = os.pread(fd, (count - 1) * size + HEADER.itemsize, at)
        if len(raw) < HEADER.itemsize:  # the file has shrunk
            return
        count = (len(raw) - HEADER.itemsize) // size + 1
        places = np.arange(count, dtype=np.int64) * size
        heads = np.frombuffer(raw, np.uint8)[places[:, None] + np.arange(HEADER.itemsize)]
        yield at + places, heads_of(heads, header.order)
        number += count


def _threads(
    who: NDArray[np.int64], number: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Sort by thread, ``who``, and number; mark chunks that start a thread, and those that follow
    their predecessor.

    A tid can be reused by a later thread. Numbers then repeat; their order is the file's, and a new
    thread starts wherever they restart.
    """
    place = np.arange(len(who))
    order = np.lexsort((place, number, who))
    same = (who[order][1:] == who[order][:-1]) & (number[order][1:] == number[order][:-1])
    again = np.isin(who, who[order][1:][same])
    order = np.lexsort((place, np.where(again, place, number), who))
    fresh, follows = np.ones(len(who), bool), np.ones(len(who), bool)
    step = number[order][1:] - number[order][:-1]
    fresh[1:] = (who[order][1:] != who[order][:-1]) | (step <= 0)
    follows[1:] = step == 1
    return order, fresh, follows | fresh & (number[order] == 0)


def _no_later(thread: NDArray[np.intp], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """The running maximum of start times per thread, so that each thread's chunks stay in order."""
    ranked = np.unique(start)
    rank = np.searchsorted(ranked, start) + thread * len(ranked)
    return np.asarray(ranked[np.maximum.accumulate(rank) - thread * len(ranked)])
