# SPDX-License-Identifier: MIT
"""Sources of a running kernel's events: the file that QEMU writes, or its memory.

The sink ``memory`` is a ring in the kernel's data (`ftpatch.arch.boot.Slots`). The machine's memory
is a file that this process shares with QEMU, so an event costs the kernel a few stores, and nobody
a system call. A pipe tells that half of the ring is full.
"""

from __future__ import annotations

import mmap
import os
import select
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Slots
from ftpatch.boot.guest_memory import shared_memory
from ftpatch.boot.stream import Decoder, Source

__all__ = ["Feed", "FileFeed", "MemoryFeed"]

STEP = 0.2
"""Seconds between two polls."""
PART = 1 << 20
"""Bytes to examine at a time."""
STOP = 0xC000_0000
"""Value of the tracer's word: stopped."""
STUCK = 5.0
"""Seconds after which a slot that was taken and not filled is given up: its processor stopped."""
PAGE = 4096
Places = NDArray[np.int64]


class Feed(Protocol):
    """``lost`` counts events known to be missing; ``files`` are descriptors for QEMU, ``words``
    its words, and ``sent`` the file that it writes what the tracer sends to."""

    lost: int
    files: Sequence[int]
    words: Sequence[str]
    sent: str

    def started(self) -> None:
        """Prepare for reading: QEMU runs."""

    def read(self) -> tuple[Places, bool]:
        """Places of new events, int64[n], and whether more may be there already."""

    def sent_events(self) -> int:
        """Number of events that the machine has sent, read or not."""

    def stop(self, keep: int) -> None:
        """Stop the tracer if that is possible; the recording ends after ``keep`` events."""

    def finish(self) -> None:
        """Leave the recording in the stream."""


class FileFeed:
    """The stream as QEMU writes it; ``last``: as in MemoryFeed."""

    files: Sequence[int] = ()
    words: Sequence[str] = ()
    lost = 0

    def __init__(self, source: Source, stream: Path, last: int) -> None:
        self._source, self._stream, self._most = source, stream, last
        self._decoder, self._keep = Decoder(source), 0
        self.sent = str(stream)
        stream.touch()
        self._file = stream.open("rb")

    def started(self) -> None:
        """Do nothing."""

    def read(self) -> tuple[Places, bool]:
        """Decode what was written since, or wait a moment."""
        raw = self._file.read(PART)
        if not raw:
            sleep(STEP)
        parts = [events.place for events in self._decoder.feed(np.frombuffer(raw, np.uint8))]
        return np.concatenate([np.empty(0, np.int64), *parts]), len(raw) == PART

    def sent_events(self) -> int:
        """Count the whole events of the file."""
        return self._stream.stat().st_size // self._source.size

    def stop(self, keep: int) -> None:
        """The tracer goes on; the rest is cut off at the end."""
        self._keep = keep

    def finish(self) -> None:
        """Cut the file at both ends. What is not an event is counted as if it came first."""
        end = self._file.tell()  # the machine may have sent more
        self._file.close()
        size = self._source.size
        if self._keep:
            end = min(end, self._keep * size + self._decoder.skipped)
        os.truncate(self._stream, end)
        if self._most and end > self._most * size:
            with self._stream.open("rb") as file:
                file.seek(end - self._most * size)
                kept = file.read()
            self._stream.write_bytes(kept)


class MemoryFeed:
    """The ring in a machine's ``memory``, of so many bytes, with its word at that offset. With
    ``last`` only so many events are kept, the latest."""

    def __init__(self, source: Source, stream: Path, memory: int, word: int, last: int) -> None:
        slots = Slots(source.mark.time)
        self._size, self._most = slots.size, last
        self._memory = os.memfd_create("ftpatch")
        os.ftruncate(self._memory, memory)
        self._told, self._tell = os.pipe()
        os.set_blocking(self._told, False)
        self.files: Sequence[int] = (self._memory, self._tell)
        self.words: Sequence[str] = shared_memory(self._memory, memory)
        self.sent = f"/proc/self/fd/{self._tell}"
        base = word // PAGE * PAGE
        self._map = mmap.mmap(self._memory, PAGE, offset=base)
        at = word - base
        words = np.frombuffer(self._map, np.uint32)[at // 4 :]
        self._word, self._head = words[:2], words[Slots.HEAD // 4 :][:1]
        self._tail = words[Slots.TAIL // 4 :][:1]
        raw = np.frombuffer(self._map, np.uint8)[at - Slots.RING :][: slots.count * slots.size]
        self._rows = raw.view(np.uint64).reshape(slots.count, -1)
        self._places = raw.view(np.uint32).reshape(slots.count, -1)[:, 0]
        number = np.arange(slots.count)
        self._orders = [np.roll(number, -first) for first in range(slots.count)]
        self._taken = self.lost = self._events = self._held = 0
        self._keep: int | None = None
        self._last: deque[NDArray[np.uint64]] = deque()
        self._moved = monotonic()
        self._file = stream.open("wb")
        self._poll = select.poll()
        self._poll.register(self._told, select.POLLIN)
        self._ended = False

    def started(self) -> None:
        """Close our copy of QEMU's end of the pipe, so that its end is seen."""
        os.close(self._tell)

    def read(self) -> tuple[Places, bool]:
        """Take what comes until it is much, or for a moment."""
        begun, parts, count = monotonic(), list[NDArray[np.uint64]](), 0
        while count * self._size < PART and (left := begun + STEP - monotonic()) > 0:
            if not self._ended and self._poll.poll(left * 1000):
                with suppress(BlockingIOError):
                    self._ended = not os.read(self._told, PART)
            rows = self._take()
            if len(rows):
                parts.append(rows)
                count += len(rows)
            elif self._ended:
                break
        if count:
            self._moved = monotonic()
        elif self._head[0] != self._taken & 0xFFFF_FFFF and monotonic() - self._moved > STUCK:
            self._pass(1)
            self.lost += 1
            self._moved = monotonic()
        rows = np.concatenate([np.empty((0, self._rows.shape[1]), np.uint64), *parts])
        self._record(rows)
        return rows.view(np.int32)[:, 0].astype(np.int64), count * self._size >= PART

    def sent_events(self) -> int:
        """Count the slots that were taken."""
        taken = self._taken
        return taken + (int(self._head[0]) - taken & 0xFFFF_FFFF)

    def stop(self, keep: int) -> None:
        """Stop the tracer."""
        self._word[:] = STOP, 1
        self._keep = keep

    def finish(self) -> None:
        """Write what is held, and cut what came behind the end."""
        keep = self._events if self._keep is None else min(self._keep, self._events)
        if self._most:
            rows = np.concatenate([self._rows[:0], *self._last])
            rows[: len(rows) - (self._events - keep)][-self._most :].tofile(self._file)
        else:
            self._file.truncate(keep * self._size)
        self._file.close()
        os.close(self._told)
        os.close(self._memory)

    def _take(self) -> NDArray[np.uint64]:
        """Take the slots that are full."""
        order = self._orders[self._taken % len(self._orders)]
        empty = np.flatnonzero(self._places[order] == 0)
        order = order[: empty[0]] if len(empty) else order
        rows = self._rows[order]
        self._places[order] = 0
        self._pass(len(rows))
        return rows

    def _pass(self, count: int) -> None:
        self._taken += count
        self._tail[0] = self._taken & 0xFFFF_FFFF

    def _record(self, rows: NDArray[np.uint64]) -> None:
        """Write, or hold the latest of a flight recorder."""
        if self._keep is not None or not len(rows):
            return
        self._events += len(rows)
        if not self._most:
            rows.tofile(self._file)
            return
        self._last.append(rows)
        self._held += len(rows)
        while self._held - len(self._last[0]) >= self._most + PART // self._size:
            self._held -= len(self._last.popleft())
