# SPDX-License-Identifier: MIT
"""Recordings of function_profile: sums instead of events."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.layout import constants, structure
from ftpatch.trace.reader import Trace
from ftpatch.trace.totals import Totals

__all__ = ["read_profiles"]

ENTRY = structure("trace_profile")
STEP = 1 << 20
"""Bytes read at a time."""
MAX_FUNC = (1 << constants["FUNC_BITS"]) - 1


def read_profiles(trace: Trace, only: int | None = None) -> Totals:
    """Sum over all threads, of all files or of one. Raises InputError if a file cannot be read."""
    recording = trace.recording
    functions = recording.functions
    sums = np.zeros((3, 0))
    for number in range(len(trace.chunks)):
        file = int(trace.chunks.file[number])
        if only not in (None, file):
            continue
        rate = trace.clocks[file].rate
        for entries in _entries(trace, number):
            func = (entries["func"] - np.uint64(1)).astype(np.uint32)
            index = functions.ids(recording.program[file], func)
            size = len(functions)
            sums = np.pad(sums, ((0, 0), (0, size - sums.shape[1])))
            sums[0] += np.bincount(index, entries["hits"].astype(float), minlength=size)
            sums[1] += np.bincount(index, entries["total"] * rate, minlength=size)
            sums[2] += np.bincount(index, entries["self"] * rate, minlength=size)
    if recording.window.globs:
        kept = recording.window.keeps(functions)
        sums = np.where(kept, sums, 0)
    return Totals.of(*sums)


def _entries(trace: Trace, number: int) -> Iterator[NDArray[np.void]]:
    """Yield the entries of one chunk, including empty ones."""
    chunks = trace.chunks
    path, fd, order = trace.files[int(chunks.file[number])]
    at, left = int(chunks.offset[number]), int(chunks.words[number]) * 8
    while left >= ENTRY.itemsize:
        try:
            raw = os.pread(fd, min(left, STEP) // ENTRY.itemsize * ENTRY.itemsize, at)
        except OSError as error:
            raise InputError(path, f"cannot read: {error.strerror}") from None
        entries = np.frombuffer(raw, order.record(ENTRY)).astype(ENTRY, copy=False)
        if not len(entries):  # the file has shrunk
            return
        yield entries[(entries["func"] > 0) & (entries["func"] <= MAX_FUNC)]
        at, left = at + len(entries) * ENTRY.itemsize, left - len(entries) * ENTRY.itemsize
