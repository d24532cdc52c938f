# SPDX-License-Identifier: MIT
"""A process's trace file, as stubs/runtime/trace.h lays it out, written from outside the process.

A thread's events fill chunks of its own. A chunk is on the disk as far as it is filled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import NATIVE
from ftpatch.layout import constants, offset_of, pack, structure, texts
from ftpatch.trace.header import Flag, Tracer
from ftpatch.trace.mapped import Mapped
from ftpatch.watch.copied_stacks import events_with_stacks
from ftpatch.watch.table import SLOTS, TABLE_SIZE, pack_watches
from ftpatch.watch.watches import Watch

__all__ = ["ROW", "TraceFile", "Traced"]

ROW: Final = [
    *((name, "u8") for name in ("time", "ip", "before", "after")),
    *((name, "u4") for name in ("tid", "watch", "cpu")),
]
"""An access: ``time`` in nanoseconds of CLOCK_MONOTONIC."""
HERTZ: Final = 10**9
CHUNK: Final = constants["CHUNK"]
FIRST: Final = structure("trace_chunk").itemsize
WORDS: Final = 5
"""Words of an event: its first, ip, the value before, the value now, CPU."""
FIXED: Final = constants["TRACE_HEADER"]
HEADER_SIZE: Final = FIXED + TABLE_SIZE
LIBRARIES: Final = offset_of("trace_header", "libraries")
MAX_SPAN: Final = 1 << constants["TICKS_BITS"]
"""Nanoseconds that an event may be after its chunk's base."""
ENTRY: Final = structure("trace_watch").itemsize


@dataclass(frozen=True, kw_only=True)
class Traced:
    """A process as its header tells it, and the watches that it has. ``pointer``: which register of
    records is the stack pointer."""

    pid: int
    ppid: int
    comm: str
    image: Path
    image_id: bytes
    machine: int
    bias: int
    objects: Sequence[Mapped]
    watches: Sequence[Watch]
    pointer: int = 0


@dataclass
class _Chunk:
    """A thread's chunk: the offset of its next event, the words left, and its base."""

    at: int
    left: int
    base: int
    number: int


class TraceFile:
    """Writes the file ``path``, of at most ``size`` bytes, which begins at ``ticks`` (nanoseconds
    of CLOCK_MONOTONIC), ``realtime`` since 1970. Raises OSError, and FileExistsError for a name
    that is taken."""

    def __init__(self, path: Path, traced: Traced, *, size: int, ticks: int, realtime: int) -> None:
        self.path = path
        self._watches, self._pointer = traced.watches, traced.pointer
        self._stacked = np.array([one.stack > 0 for one in traced.watches], bool)
        self._size = size + TABLE_SIZE
        self._taken, self._full = 0, 0
        self._hits, self._missed = ([0] * SLOTS for _ in range(2))
        self._threads: dict[int, _Chunk] = {}
        self._marks: list[tuple[int, int, bytes]] = []
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)
        self._fields: dict[str, Any] = {
            "magic": texts["TRACE_MAGIC"],
            "version": constants["TRACE_VERSION"],
            "header_size": HEADER_SIZE,
            "machine": traced.machine,
            "chunk_size": CHUNK,
            "tracer": int(Tracer.WATCH),
            "flags": int(Flag.ATTACHED),
            "size": self._size,
            "bias": traced.bias,
            "hz": HERTZ,
            "ticks": ticks,
            "realtime": realtime,
            "pid": traced.pid,
            "ppid": traced.ppid,
            "image_id": traced.image_id,
            "comm": _cut("comm", os.fsencode(traced.comm)),
            "probes": SLOTS,
            "path": _cut("path", bytes(traced.image)),
        }
        self._objects = _packed(traced.objects)
        self.flush()

    def add(self, rows: NDArray[np.void], records: NDArray[np.void]) -> None:
        """Add accesses, ROW[n], by time, with the records that have their stacks. Who reads
        meanwhile sees none of them before ``show``. Raises OSError."""
        order = np.argsort(rows["tid"], kind="stable")
        rows, records = rows[order], records[order]
        ends = np.flatnonzero(np.diff(rows["tid"].astype(np.int64))) + 1
        for part, copies in zip(np.split(rows, ends), np.split(records, ends), strict=True):
            self._append(int(part["tid"][0]), part, copies)
        self.flush()  # chunks are found by the header

    def show(self) -> None:
        """Make what was added be there, within a few system calls: who follows the trace takes
        accesses to be in the order in which they come. Raises OSError."""
        for _, at, mark in sorted(self._marks, key=lambda one: one[0]):
            os.pwrite(self._fd, mark, at)
        self._marks.clear()

    def miss(self, number: int, count: int) -> None:
        """Count accesses to a watch that were not recorded."""
        self._missed[number] += count

    def flush(self) -> None:
        """Write the header as it is now. Raises OSError."""
        lost = [0] * constants["LOST_KINDS"]
        lost[constants["LOST_FULL"]] = self._full
        head = pack(
            "trace_header",
            NATIVE,
            **self._fields,
            taken=self._taken,
            threads=len(self._threads),
            lost=lost,
            grown=-(-(HEADER_SIZE + self._taken) // constants["TRACE_UNIT"]),
        )
        table = bytearray(pack_watches(self._watches, NATIVE))
        for number, counts in enumerate(zip(self._hits, self._missed, strict=True)):
            for member, value in zip(("hits", "missed"), counts, strict=True):
                at = number * ENTRY + offset_of("trace_watch", member)
                table[at : at + 8] = NATIVE.packed(value, 8)
        whole = (head[:LIBRARIES] + self._objects).ljust(FIXED, b"\0") + bytes(table)
        os.pwrite(self._fd, whole, 0)
        os.truncate(self._fd, HEADER_SIZE + self._taken)

    def close(self) -> None:
        """Write what is left, and close it. Raises OSError."""
        try:
            self.flush()
        finally:
            os.close(self._fd)

    def _append(self, tid: int, rows: NDArray[np.void], records: NDArray[np.void]) -> None:
        """Write a thread's accesses, but for the words that make them, and new chunks, be there:
        these wait, with their times and file offsets."""
        stacked = self._stacked[rows["watch"]]
        words, lengths = _words(rows), np.full(len(rows), WORDS, np.int64)
        flat = words.ravel()
        if stacked.any():
            flat, lengths = events_with_stacks(words, records, stacked, self._pointer)
        ends = np.cumsum(lengths)
        begins, done = ends - lengths, 0
        while done < len(rows):
            first = int(rows["time"][done])
            chunk = self._threads.get(tid)
            if chunk is None or chunk.left < lengths[done] or first - chunk.base >= MAX_SPAN:
                chunk = self._chunk(tid, first, chunk)
                if chunk is None:
                    self._drop(rows[done:])
                    return
            near = int(np.searchsorted(rows["time"], chunk.base + MAX_SPAN))
            room = int(np.searchsorted(ends, begins[done] + chunk.left, side="right"))
            some = slice(done, min(near, room))
            part = flat[begins[done] : ends[some][-1]].copy()
            ticks = rows["time"][some] - np.uint64(chunk.base)
            part[begins[some] - begins[done]] |= ticks << np.uint64(constants["TICKS_SHIFT"])
            raw = part.tobytes()
            os.pwrite(self._fd, raw[8:], chunk.at + 8)
            self._marks.append((first, chunk.at, raw[:8]))
            chunk.at += len(raw)
            chunk.left -= len(part)
            self._count(self._hits, rows[some])
            done = some.stop

    def _chunk(self, tid: int, base: int, before: _Chunk | None) -> _Chunk | None:
        """A thread's next chunk; None if the file is full."""
        at = HEADER_SIZE + self._taken
        if at + CHUNK > self._size:
            return None
        number = before.number + 1 if before else 0
        fields = {"magic": constants["CHUNK_MAGIC"], "tid": tid, "base": base, "number": number}
        head = pack("trace_chunk", NATIVE, **fields)
        os.pwrite(self._fd, head[4:], at + 4)
        self._marks.append((base, at, head[:4]))
        self._taken += CHUNK
        chunk = _Chunk(at + FIRST, (CHUNK - FIRST) // 8, base, number)
        self._threads[tid] = chunk
        return chunk

    def _drop(self, rows: NDArray[np.void]) -> None:
        self._full += len(rows)
        self._count(self._missed, rows)

    @staticmethod
    def _count(counts: list[int], rows: NDArray[np.void]) -> None:
        for number, count in enumerate(np.bincount(rows["watch"], minlength=SLOTS).tolist()):
            counts[number] += count


def _words(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    """Events, uint64[n, 5], without their ticks."""
    out = np.empty((len(rows), WORDS), np.uint64)
    out[:, 0] = rows["watch"].astype(np.uint64) << np.uint64(constants["TYPE_BITS"])
    out[:, 0] |= np.uint64(constants["EVENT_ACCESS"])
    for column, name in enumerate(("ip", "before", "after", "cpu"), 1):
        out[:, column] = rows[name]
    return out


def _packed(objects: Sequence[Mapped]) -> bytes:
    """As many structs trace_library as there is room for."""
    out = b""
    for one in objects:
        path = os.fsencode(one.path)
        length = (structure("trace_library").itemsize + len(path) + 8) & ~7
        fields: dict[str, Any] = {"size": one.size, "base": one.base, "bias": one.bias}
        entry = pack("trace_library", NATIVE, length=length, **fields) + path
        if LIBRARIES + len(out) + length + 8 <= FIXED:
            out += entry.ljust(length, b"\0")
    return out


def _cut(member: str, text: bytes) -> bytes:
    """A text with the NUL that ends it."""
    return text[: structure("trace_header")[member].itemsize - 1]
