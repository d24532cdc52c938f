# SPDX-License-Identifier: MIT
"""Trace files opened together: the basis of every source that reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError, UsageError
from ftpatch.trace.batches import Batches
from ftpatch.trace.chunks import Chunks, find_chunks, join_chunks, with_threads
from ftpatch.trace.clock import Clock, clocks
from ftpatch.trace.header import Header, open_trace
from ftpatch.trace.rotated import merged, runs_of
from ftpatch.trace.source import Recording
from ftpatch.trace.window import Window
from ftpatch.trace.word_file import WordFile

__all__ = ["OpenFile", "Opened", "Trace", "open_files", "processes_in"]


@dataclass(frozen=True)
class OpenFile:
    """One opened trace file."""

    fd: int
    header: Header

    @property
    def words(self) -> WordFile:
        """The file, for what reads its words."""
        return WordFile(self.header.path, self.fd, self.header.order)


def open_files(paths: Sequence[Path]) -> list[OpenFile]:
    """Open trace files. Raises InputError: then none is open."""
    sources: list[OpenFile] = []
    try:
        for path in paths:
            sources.append(OpenFile(*open_trace(path)))
    except InputError:
        for source in sources:
            os.close(source.fd)
        raise
    return sources


def processes_in(headers: Sequence[Header]) -> list[Header]:
    """One header for each process, of all its files."""
    return [merged([headers[number] for number in run]) for run in runs_of(headers)]


class Opened:
    """Trace files that are open: ``sources``, and of each its header, clock, path and
    descriptor; ``recording`` as reports have it. ``damaged`` counts corrupt chunks, ``torn`` those
    that end in an invalid event, ``overrun`` those of rings that were overwritten before they were
    read."""

    recording: Recording
    damaged = 0
    torn = 0
    overrun = 0

    def __init__(self, sources: Sequence[OpenFile]) -> None:
        """Take them over."""
        self.sources = [*sources]
        self.headers = [source.header for source in self.sources]
        self.clocks: list[Clock] = clocks(self.headers)
        self.files = [one.words for one in self.sources]
        self._runs_known = runs_of(self.headers)

    @property
    def runs(self) -> list[list[int]]:
        """The numbers of the files of each process. What a file is of never changes."""
        if sum(map(len, self._runs_known)) != len(self.headers):
            self._runs_known = runs_of(self.headers)
        return self._runs_known

    @property
    def processes(self) -> NDArray[np.int32]:
        """The number of each file's process, int32[n]."""
        out = np.zeros(len(self.headers), np.int32)
        for number, run in enumerate(self.runs):
            out[run] = number
        return out

    def notes(self) -> list[str]:
        """Irregularities found so far, one clause each, and the formats' ``remarks``; complete once
        everything has been read."""
        notes = list(self.recording.remarks)
        if self.damaged:
            notes.append(f"{self.damaged} corrupt chunk{'s' * (self.damaged > 1)} skipped")
        if self.torn:
            notes.append(f"chunks without a valid last event: {self.torn}")
        if self.overrun:
            notes.append(f"chunks overwritten before they were read: {self.overrun}")
        return notes

    def require_threads(self) -> None:
        """Raise UsageError for a thread in the window that none of them has."""
        missing = self.recording.window.tids - set(self.recording.tids)
        if missing:
            raise UsageError(None, f"no thread {min(missing)} in the trace")

    def close(self) -> None:
        """Close the files."""
        for source in self.sources:
            os.close(source.fd)


class Trace(Opened):
    """Traces that are reported together: those of a program and of its children."""

    def __init__(self, paths: Sequence[Path], window: Window) -> None:
        """Open them and find their chunks. Raises InputError, and UsageError for a thread that none
        of them has."""
        super().__init__(open_files(paths))
        chunks = self.found()
        self.recording = Recording(
            headers=processes_in(self.headers),
            tids=chunks.tid.tolist(),
            owner=chunks.owner,
            window=window,
        )
        self._take(chunks)

    @classmethod
    def parts(cls, paths: Sequence[Path], window: Window) -> list[Trace]:
        """Open traces with several kinds of events, each kind as a trace of its own: these have one
        recording, and one closes all. Raises what opening one raises."""
        sources = open_files(paths)
        try:
            kinds = sorted({kind for source in sources for kind in source.header.together})
            parts = [cls.__new__(cls) for _ in kinds]
            for part, kind in zip(parts, kinds, strict=True):
                of_kind = [replace(one, header=one.header.of(kind)) for one in sources]
                super(Trace, part).__init__(of_kind)
            chunks = with_threads([part.found() for part in parts])
            recording = Recording(
                headers=processes_in([source.header for source in sources]),
                tids=chunks[0].tid.tolist(),
                owner=chunks[0].owner,
                window=window,
            )
            for part, found in zip(parts, chunks, strict=True):
                part.recording = recording
                part._take(found)
            for part in parts[1:]:
                part.damaged = 0  # the same ones
        except BaseException:
            for source in sources:
                os.close(source.fd)
            raise
        return parts

    def found(self) -> Chunks:
        """All chunks. Raises InputError."""
        files = [
            (source.fd, source.header, clock)
            for source, clock in zip(self.sources, self.clocks, strict=True)
        ]
        parts = [find_chunks([files[n] for n in run]) for run in self.runs]
        return join_chunks(parts, self.runs)

    def _take(self, chunks: Chunks) -> None:
        """Take those chunks that the window shows."""
        tids = self.recording.window.tids
        if tids:
            self.require_threads()
            chunks = chunks.only(np.isin(chunks.tid, list(tids))[chunks.thread])
        self.chunks: Chunks = chunks
        self.damaged = chunks.damaged
        rings = [number for number, header in enumerate(self.headers) if header.is_ring]
        self.batches = Batches(self.files, chunks, self.clocks, rings)

    def notes(self) -> list[str]:
        """As of all traces that are open."""
        self.torn, self.overrun = self.batches.torn, self.batches.overrun
        return super().notes()
