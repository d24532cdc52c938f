# SPDX-License-Identifier: MIT
"""Accesses taken out of the ring, written to a trace file for each process.

Their order is the ring's, that of the accesses themselves. The value before an access is what the
one before it, in the same process, has left; a forked child begins with its parent's. So filters
are asked last: what they leave out has changed the value all the same.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants
from ftpatch.process.process import read_status
from ftpatch.watch.filtered_rows import FilteredRows
from ftpatch.watch.trace_file import ROW, Traced, TraceFile

__all__ = ["Recorder", "mark_of"]

SHIFT: Final = 8
WATCH: Final = (1 << SHIFT) - 1


def mark_of(watch: int, mark: int) -> int:
    """The mark in records: the watch's number, and that of the listing that its thread was in."""
    return watch | mark << SHIFT


class Recorder:
    """Writes the accesses of ``traced``, and of its children, to ``path`` and ``path``.PID, each of
    at most ``size`` bytes. ``values``: those of the watches at the start. Raises OSError."""

    def __init__(self, path: Path, traced: Traced, *, size: int, values: Sequence[int]) -> None:
        self._path, self._traced, self._size = path, traced, size
        self._begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.time_ns()
        self._files = {traced.pid: self._file(path, traced, self._begun[0])}
        self._values: dict[int, list[int]] = {traced.pid: list(values)}
        self._filters = {traced.pid: [FilteredRows(one.rows) for one in traced.watches]}
        self._lowest: dict[int, int] = {}
        self._last = 0
        self.taken = [0] * len(values)
        """Records of each watch, those that are there twice included."""
        self.recorded = 0

    @property
    def paths(self) -> list[Path]:
        """The files, the process's own first."""
        return [one.path for one in self._files.values()]

    def add(self, records: NDArray[np.void]) -> None:
        """Write records, in the order of the ring. Raises OSError."""
        if not len(records):
            return
        watch = records["mark"] & WATCH
        for number, count in enumerate(np.bincount(watch, minlength=len(self.taken)).tolist()):
            self.taken[number] += count
        kept = self._once(records)
        records, watch = records[kept], watch[kept]
        rows = np.zeros(len(records), ROW)
        for name in ("tid", "ip", "cpu"):
            rows[name] = records[name]
        rows["watch"], rows["after"] = watch, records["value"]
        rows["time"] = self._times(records["time"])
        unseen = records["pid"] == 0
        rows["tid"][unseen] = self._traced.pid
        pids = np.where(unseen, self._traced.pid, records["pid"])
        for pid in dict.fromkeys(pids.tolist()):
            mine = pids == pid
            self.recorded += self._write(pid, rows[mine], records[mine])
        for one in self._files.values():
            one.show()

    def finish(self, counted: Sequence[int]) -> None:
        """Say how many accesses are missing, given how many the kernel has ``counted``, and close
        the files. Raises OSError."""
        for number, count in enumerate(counted):
            own = self._files[self._traced.pid]
            own.miss(number, max(0, count - self.taken[number]))
        for one in self._files.values():
            one.close()

    def _once(self, records: NDArray[np.void]) -> NDArray[np.bool_]:
        """Mask of the records that are not there already with a lower mark, bool[n]."""
        marks, tids = records["mark"] >> SHIFT, records["tid"]
        known, index = np.unique(tids, return_inverse=True)
        lowest = np.array([self._lowest.get(tid, WATCH) for tid in known.tolist()], np.uint32)
        np.minimum.at(lowest, index, marks)
        self._lowest.update(zip(known.tolist(), lowest.tolist(), strict=True))
        return np.asarray(marks == lowest[index])

    def _times(self, times: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Times that ascend as the records do: clocks of processors are read after their turn."""
        step = np.arange(len(times), dtype=np.int64)
        given = times.astype(np.int64)
        given[:1] = np.maximum(given[:1], self._last + 1)
        out = np.maximum.accumulate(given - step) + step
        self._last = int(out[-1]) if len(out) else self._last
        return out.astype(np.uint64)

    def _write(self, pid: int, rows: NDArray[np.void], records: NDArray[np.void]) -> int:
        """Write accesses of one process, as far as they are asked for; return their number."""
        if pid not in self._values:
            own = self._traced.pid
            self._values[pid] = list(self._values[own])
            self._filters[pid] = [one.forked() for one in self._filters[own]]
        values = self._values[pid]
        asked = np.ones(len(rows), bool)
        for number in np.unique(rows["watch"]).tolist():
            mine = np.flatnonzero(rows["watch"] == number)
            after = rows["after"][mine]
            rows["before"][mine] = np.concatenate([[np.uint64(values[number])], after[:-1]])
            values[number] = int(after[-1])
            asked[mine] = self._asked(self._filters[pid][number], rows[mine])
        rows, records = rows[asked], records[asked]
        if len(rows):
            if pid not in self._files:
                self._files[pid] = self._child_file(pid, int(rows["time"][0]))
            self._files[pid].add(rows, records)
        return len(rows)

    def _asked(self, filter: FilteredRows, rows: NDArray[np.void]) -> NDArray[np.bool_]:
        words = np.zeros((len(rows), constants["WATCH_WORDS"]), np.uint64)
        for name, member in (("OLD", "before"), ("NEW", "after"), ("IP", "ip"), ("TID", "tid")):
            words[:, constants[f"WORD_{name}"]] = rows[member]
        words[:, constants["WORD_IP"]] -= np.uint64(self._traced.bias % (1 << 64))
        return filter.passing(words)

    def _file(self, path: Path, traced: Traced, ticks: int) -> TraceFile:
        begun, realtime = self._begun
        return TraceFile(
            path, traced, size=self._size, ticks=ticks, realtime=realtime + ticks - begun
        )

    def _child_file(self, pid: int, ticks: int) -> TraceFile:
        """Make the file of a child; where its name is taken, it gets a number more."""
        traced, path = self._child(pid), self._path.with_name(f"{self._path.name}.{pid}")
        for number in itertools.count(2):
            with contextlib.suppress(FileExistsError):
                return self._file(path, traced, ticks)
            path = self._path.with_name(f"{self._path.name}.{pid}.{number}")
        raise AssertionError

    def _child(self, pid: int) -> Traced:
        place = Path(f"/proc/{pid}")
        status = read_status(place)
        comm = self._traced.comm
        with contextlib.suppress(OSError):  # it has ended
            comm = os.fsdecode((place / "comm").read_bytes().rstrip(b"\n"))
        ppid = int(status.get("PPid", self._traced.pid))
        return replace(self._traced, pid=pid, ppid=ppid, comm=comm)
