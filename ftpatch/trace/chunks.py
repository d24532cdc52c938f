# SPDX-License-Identifier: MIT
"""Chunks of a trace, and the thread that wrote each."""

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
"""Bytes read at a time where chunks are small."""
SMALL = 16 << 10
"""Bytes of a chunk up to which reading all costs less than reading headers one by one."""


@dataclass(frozen=True, kw_only=True)
class Chunks:
    """n chunks in the order in which they began, those of one thread in the thread's.

    ``file`` int32[n]: which trace. ``offset`` int64[n]: of the first event in the file (bytes).
    ``words`` int64[n]: 64-bit words that the file has from there, to the chunk's end. ``thread``
    int32[n]: index of the thread. ``base`` uint64[n]: ticks. ``start`` int64[n]: nanoseconds, no
    later than any event of this chunk or of those that follow it in its thread. ``open`` int64[n]:
    frames that were open, -1 where the chunk before is this one's predecessor and knows it.
    ``tid`` and ``owner`` (int32[t]: which trace) of each thread. ``damaged``: how many chunks were
    none.
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
        """Those of a mask."""
        names = ("file", "offset", "words", "thread", "base", "start", "open")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def find_chunks(fd: int, header: Header, clock: Clock) -> Chunks:
    """The chunks of one trace. Neither the header's counts nor a chunk's are trusted: a chunk is
    where its magic is. Raises OSError."""
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
    """The chunks of several traces, in the order in which they began."""
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
    """Places and headers of all chunks, but those that lie in a hole of the file."""
    size, length = header.chunk_size, header.length
    step = STEP // size if size <= SMALL else 1
    number, last = 0, (length - header.header_size - HEADER.itemsize) // size
    while number <= last:
        at = header.header_size + number * size
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            data = at
        skipped = (data - at) // size
        if skipped:
            number += skipped
            continue
        count = min(step, last - number + 1)
        raw = os.pread(fd, (count - 1) * size + HEADER.itemsize, at)
        if len(raw) < HEADER.itemsize:  # the file became shorter
            return
        count = (len(raw) - HEADER.itemsize) // size + 1
        places = np.arange(count, dtype=np.int64) * size
        heads = np.frombuffer(raw, np.uint8)[places[:, None] + np.arange(HEADER.itemsize)]
        yield at + places, heads.view(HEADER).ravel()
        number += count


def _threads(
    tid: NDArray[np.int64], number: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.bool_]]:
    """Order by thread and number; which chunk begins a thread; which one follows its predecessor.

    A tid may be given again to a later thread: then numbers repeat, and their order is the file's,
    with a new thread wherever they begin again.
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
    """The highest start so far in each thread: chunks of one thread keep their order."""
    ranked = np.unique(start)
    rank = np.searchsorted(ranked, start) + thread * len(ranked)
    return np.asarray(ranked[np.maximum.accumulate(rank) - thread * len(ranked)])
