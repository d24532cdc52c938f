# SPDX-License-Identifier: MIT
"""Sums over functions without rows: where a stack is all it takes, stubs/reader/tally.c does it,
which this process loads.

It takes regular recordings, which most are: whole ones of one program, in which every return is of
the innermost open call. All others, and all on machines that it is not built for, are left to
`totals.total()`, which comes to the same sums by rows.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ftpatch.io.activity import doing
from ftpatch.layout import constants, structure
from ftpatch.layout.built import built
from ftpatch.trace.batches import BATCH_WORDS
from ftpatch.trace.header import Tracer
from ftpatch.trace.reader import Trace
from ftpatch.trace.symbolize import DENSE
from ftpatch.trace.totals import Totals

__all__ = ["tally"]

FRAME = structure("tally_frame")
MAX_SHIFT = 1 << constants["TALLY_NS_BITS"]
"""Nanoseconds."""


@cache
def _library() -> ctypes.CDLL | None:
    """The one that the system's loader takes; it refuses those for other processors."""
    for path in sorted(built().glob("*/tally.so")):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        pointer, number = ctypes.c_void_p, ctypes.c_uint64
        library.tally_unknown.argtypes = [pointer, number, pointer, number, pointer]
        library.tally_unknown.restype = ctypes.c_int64
        library.tally_chunk.argtypes = [pointer, ctypes.c_double]
        library.tally_chunk.restype = ctypes.c_int64
        library.tally_turn.argtypes = [pointer, ctypes.c_int64]
        library.tally_turn.restype = None
        library.tally_end.argtypes = [pointer]
        library.tally_end.restype = None
        return library
    return None


class _Threads:
    """The state of each thread between its chunks, and that of the one whose chunk it is."""

    def __init__(self, library: ctypes.CDLL, trace: Trace) -> None:
        self._library, self._trace = library, trace
        self._functions, self._owner = trace.recording.functions, trace.recording.owner.tolist()
        self._state = np.zeros(1, structure("tally"))
        self._now, self._at = self._state[0], self._state.ctypes.data
        self._numbers = np.zeros(DENSE, np.uint32)
        self._unknown = np.empty(BATCH_WORDS, np.uint32)
        self._sums = np.zeros((len(trace.headers), 0, 4))
        self._open = np.zeros(0, np.uint32)
        self._frames = np.zeros(0, FRAME)
        self._left: dict[int, tuple[NDArray[np.void], int]] = {}
        self._thread = -1
        self._now["numbers"] = self._numbers.ctypes.data
        self._room(BATCH_WORDS)

    def learn(self, words: NDArray[np.uint64], counts: NDArray[np.int64]) -> bool:
        """Number the functions of some chunks, as rows would be numbered together. False for chunks
        that are irregular."""
        fresh = []
        numbers, unknown = self._numbers.ctypes.data, self._unknown.ctypes.data
        for at, count in zip(_rows(words), counts.tolist(), strict=True):
            found = self._library.tally_unknown(at, count, numbers, DENSE, unknown)
            if found < 0:
                return False
            if found:
                fresh.append(self._unknown[:found].copy())
        if fresh:
            func = np.concatenate(fresh)
            self._numbers[func] = self._functions.ids(0, func) + 1
            more = len(self._functions) - len(self._open)
            self._sums = np.pad(self._sums, ((0, 0), (0, more), (0, 0)))
            self._open = np.pad(self._open, (0, more))
            self._now["open"] = self._open.ctypes.data
            self._point_at_sums()
        return True

    def add(self, chunk: int, at: int) -> bool:
        """Add a chunk, by its number and where its words are. False if it is irregular."""
        chunks, now = self._trace.chunks, self._now
        self._take_up(int(chunks.thread[chunk]))
        clock = self._trace.clocks[int(chunks.file[chunk])]
        now["words"], now["count"] = at, chunks.words[chunk]
        now["base"], now["origin"], now["shift"] = chunks.base[chunk], clock.origin, clock.shift
        self._room(int(now["depth"]) + int(now["count"]))
        return not self._library.tally_chunk(self._at, clock.rate)

    def end(self) -> NDArray[np.float64]:
        """Sums of each header's process, float64[h, f, 4], with the calls that are still open."""
        for thread in [*self._left, self._thread]:
            self._take_up(thread)
            self._library.tally_end(self._at)
        return self._sums

    def _take_up(self, thread: int) -> None:
        if thread != self._thread:
            now = self._now
            depth = int(now["depth"])
            self._library.tally_turn(self._at, -1)
            self._left[self._thread] = self._frames[:depth].copy(), int(now["last"])
            frames, last = self._left.pop(thread, (self._frames[:0], np.iinfo(np.int64).min))
            self._thread, now["depth"], now["last"] = thread, len(frames), last
            self._room(len(frames))
            self._frames[: len(frames)] = frames
            self._library.tally_turn(self._at, 1)
            self._point_at_sums()

    def _point_at_sums(self) -> None:
        owner = self._owner[self._thread] if self._thread >= 0 else 0
        self._now["sums"] = self._sums[owner].ctypes.data

    def _room(self, frames: int) -> None:
        if frames > len(self._frames):
            self._frames = np.concatenate([self._frames, np.zeros(frames, FRAME)])
            self._now["frames"] = self._frames.ctypes.data


def tally(trace: Trace) -> tuple[Totals, list[Totals]] | None:
    """Sum over everything, and over each header's process; None if it cannot be done so. Raises
    InputError if a file cannot be read."""
    library, chunks = _library(), trace.chunks
    if library is None or not len(chunks) or not _is_regular(trace):
        return None
    threads = _Threads(library, trace)
    steps = len(trace.batches)
    with doing("reading the recording", steps if steps > 1 else 0) as now:
        for index, words in trace.batches.words():
            if not threads.learn(words, chunks.words[index]):
                return None
            if not all(map(threads.add, index.tolist(), _rows(words))):
                return None
            now.done += 1
    if trace.batches.overrun:
        return None
    sums = threads.end()
    return Totals.of(*sums.sum(axis=0).T), [Totals.of(*one.T) for one in sums]


def _rows(words: NDArray[np.uint64]) -> range:
    """Where in memory each row is."""
    first, step = words.ctypes.data, words.strides[0]
    return range(first, first + len(words) * step, step)


def _is_regular(trace: Trace) -> bool:
    """As far as can be told before it is read."""
    recording, chunks = trace.recording, trace.chunks
    window = recording.window
    return (
        len(recording.functions.programs) == 1
        and all(header.tracer != Tracer.FUNCTION for header in trace.headers)
        and all(abs(clock.shift) < MAX_SHIFT for clock in trace.clocks)
        and window.is_whole
        and not (window.globs or window.filters)
        and not (chunks.open >= 0).any()
        and int(chunks.words.max()) <= BATCH_WORDS
    )
