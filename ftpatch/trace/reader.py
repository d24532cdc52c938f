# SPDX-License-Identifier: MIT
"""Trace files opened together: the basis of every source that reads them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftpatch.errors import InputError, UsageError
from ftpatch.trace.batches import Batches
from ftpatch.trace.chunks import Chunks, find_chunks, join_chunks
from ftpatch.trace.clock import Clock, clocks
from ftpatch.trace.header import Header, open_trace
from ftpatch.trace.source import Recording
from ftpatch.trace.window import Window

__all__ = ["OpenFile", "Trace"]


@dataclass(frozen=True)
class OpenFile:
    """One opened trace file."""

    fd: int
    header: Header


class Trace:
    """Traces that are reported together: those of a program and of its children."""

    def __init__(self, paths: Sequence[Path], window: Window) -> None:
        """Open them and find their chunks. Raises InputError, and UsageError for a thread that none
        of them has."""
        self.sources: list[OpenFile] = []
        try:
            for path in paths:
                self.sources.append(OpenFile(*open_trace(path)))
        except InputError:
            self.close()
            raise
        self.headers = [source.header for source in self.sources]
        self.clocks: list[Clock] = clocks(self.headers)
        chunks = join_chunks(
            [self._chunks(s, c) for s, c in zip(self.sources, self.clocks, strict=True)]
        )
        if window.tids:
            missing = window.tids - set(chunks.tid.tolist())
            if missing:
                raise UsageError(None, f"no thread {min(missing)} in the trace")
            chunks = chunks.only(np.isin(chunks.tid, list(window.tids))[chunks.thread])
        self.chunks: Chunks = chunks
        self.files = [(source.header.path, source.fd) for source in self.sources]
        self.batches = Batches(self.files, chunks, self.clocks)
        self.recording = Recording(
            headers=self.headers, tids=chunks.tid.tolist(), owner=chunks.owner, window=window
        )

    @staticmethod
    def _chunks(source: OpenFile, clock: Clock) -> Chunks:
        try:
            return find_chunks(source.fd, source.header, clock)
        except OSError as error:
            raise InputError(source.header.path, f"cannot read: {error.strerror}") from None

    def notes(self) -> list[str]:
        """Irregularities found so far, one clause each, and the formats' ``remarks``; complete once
        everything has been read."""
        notes = list(self.recording.remarks)
        if self.chunks.damaged:
            notes.append(
                f"{self.chunks.damaged} corrupt chunk{'s' * (self.chunks.damaged > 1)} skipped"
            )
        if self.batches.torn:
            notes.append(f"chunks without a valid last event: {self.batches.torn}")
        return notes

    def close(self) -> None:
        """Close the files."""
        for source in self.sources:
            os.close(source.fd)
