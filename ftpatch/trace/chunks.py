# SPDX-License-Identifier: MIT
"""The chunks of a trace, and the thread that wrote each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants, structure
from ftpatch.trace.clock import Clock
from ftpatch.trace.header import Header

__all__ = ["Chunks", "find_chunks", "join_chunks"]

MAGIC = constants["CHUNK_MAGIC"]
HEADER = structure("trace_chunk")
EMPTY = np.void(bytes(HEADER.itemsize))
STEP = 4 << 20
"""Bytes read at a time if chunks are small."""
SMALL = 16 << 10
"""Maximum chunk size for which reading everything beats reading headers one by one (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """n chunks by start time, each thread's in the thread's own order.

    ``file`` int32[n]: which trace. ``offset`` int64[n]: file offset of the first event. ``words``
    int64[n]: 64-bit words present in the file from there to the chunk's end. ``thread`` int32[n]:
    index of the thread. ``base`` uint64[n]: ticks. ``start`` int64[n]: nanoseconds, a lower bound
    for all events of this chunk and of later ones of its thread. ``open`` int64[n]: open frames at
    the start, -1 if the preceding chunk is this one's predecessor and so determines them. ``tid``
    and ``owner`` (int32[t]: which trace) of each thread. ``damaged``: the number of invalid chunks.
    """

    file: NDArray[np.int32]
    offset: NDArray[np.int64]
    words: NDArray[np.int64]
    thread: NDArray[np.int32]
    base: NDArray[np.uint64]
    start: NDArray[np.int64]
    open: NDArray[np.int64]
    tid: NDArray[np.int64]
    owner: NDArray[np.int32]
    damaged: int = 0

    def __len__(self) -> int:
        return len(self.file)

    def only(self, rows: NDArray[np.bool_]) -> Chunks:
        """Select the chunks of a mask."""
        names = ("file", "offset", "words", "thread", "base", "start", "open")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def find_chunks(fd: int, header: Header, clock: Clock) -> Chunks:
    """Find the chunks of one trace. Neither the header's counts nor a chunk's are trusted: a chunk
    is where its magic is. Raises OSError."""
    at, raw = [], []
    damaged = 0
    for offsets, found in _headers(fd, header):
        good = found["magic"] == MAGIC
        damaged += int((~good & (found.view(f"V{HEADER.itemsize}") != EMPTY)).sum())
        at.append(offsets[good])
        raw.append(found[good])
    offset = np.concatenate([*at, np.empty(0, np.int64)]) + HEADER.itemsize
    head = np.concatenate([*raw, np.empty(0, HEADER)])
    tid, number = head["tid"].astype(np.int64), head["number"].astype(np.int64)
    order, fresh, follows = _threads(tid, number)
    thread = np.cumsum(fresh) - 1
    offset, head, tid = offset[order], head[order], tid[order]
    payload = header.chunk_size - HEADER.itemsize
    words = np.minimum(payload, np.maximum(header.length - offset, 0)) // 8
    base = head["base"].astype(np.uint64)
    start = _no_later(thread, clock.times(base))
    opened = np.where(follows, -1, head["open"].astype(np.int64))
    order = np.lexsort((np.arange(len(start)), start))
    return Chunks(
        file=np.zeros(len(order), np.int32),
        offset=offset[order],
        words=words[order],
        thread=thread[order].astype(np.int32),
        base=base[order],
        start=start[order],
        open=opened[order],
        tid=tid[fresh],
        owner=np.zeros(int(fresh.sum()), np.int32),
        damaged=damaged,
    )


def join_chunks(parts: list[Chunks]) -> Chunks:
    """Merge the chunks of several traces by start time."""
    firsts = np.cumsum([0, *(len(part.tid) for part in parts)])
    file = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
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
        tid=np.concatenate([part.tid for part in parts]),
        owner=owner,
        damaged=sum(part.damaged for part in parts),
    )


def _headers(fd: int, header: Header) -> Iterator[tuple[NDArray[np.int64], NDArray[np.void]]]:
    """Read the offsets and headers of all chunks, skipping holes in the file."""
    size, length = header.chunk_size, header.length
    step = STEP // size if size <= SMALL else 1
    number, last = 0, (length - header.header_size - HEADER.itemsize) // size
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
        yield at + places, heads.view(HEADER).ravel()
        number += count


def _threads(
    tid: NDArray[np.int64], number: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Sort by thread and number; mark chunks that start a thread, and those that follow their
    predecessor.

    A tid can be reused by a later thread. Numbers then repeat; their order is the file's, and a new
    thread starts wherever they restart.
    """
    place = np.arange(len(tid))
    order = np.lexsort((place, number, tid))
    same = (tid[order][1:] == tid[order][:-1]) & (number[order][1:] == number[order][:-1])
    again = np.isin(tid, tid[order][1:][same])
    order = np.lexsort((place, np.where(again, place, number), tid))
    fresh, follows = np.ones(len(tid), bool), np.ones(len(tid), bool)
    step = number[order][1:] - number[order][:-1]
    fresh[1:] = (tid[order][1:] != tid[order][:-1]) | (step <= 0)
    follows[1:] = step == 1
    return order, fresh, follows | fresh & (number[order] == 0)


def _no_later(thread: NDArray[np.intp], start: NDArray[np.int64]) -> NDArray[np.int64]:
    """The running maximum of start times per thread, so that each thread's chunks stay in order."""
    ranked = np.unique(start)
    rank = np.searchsorted(ranked, start) + thread * len(ranked)
    return np.asarray(ranked[np.maximum.accumulate(rank) - thread * len(ranked)])
