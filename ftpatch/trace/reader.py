"""Trace files to rows: what every report begins with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ftpatch.errors import InputError, UsageError
from ftpatch.trace.batches import Batches
from ftpatch.trace.chunks import Chunks, find_chunks, join_chunks
from ftpatch.trace.clock import Clock, clocks
from ftpatch.trace.header import Header, Tracer, open_trace
from ftpatch.trace.match import Matcher
from ftpatch.trace.names import Functions, Program
from ftpatch.trace.rows import Rows
from ftpatch.trace.window import Window

__all__ = ["Source", "Trace"]

ALONE = {
    Tracer.FUNCTION_PROFILE: "a profile",
    Tracer.PROBES: "probe events",
    Tracer.WATCH: "variable accesses",
}
"""Traces of another kind."""


@dataclass(frozen=True)
class Source:
    """One opened trace file."""

    fd: int
    header: Header


class Trace:
    """Traces that are reported together: those of a program and of its children."""

    def __init__(self, paths: Sequence[Path], window: Window) -> None:
        """Open them and find their chunks. Raises InputError, and UsageError for files that cannot
        be reported together, and for a thread that none of them has."""
        self.sources: list[Source] = []
        try:
            for path in paths:
                self.sources.append(Source(*open_trace(path)))
        except InputError:
            self.close()
            raise
        self.window = window
        self.headers = [source.header for source in self.sources]
        for alone, what in ALONE.items():
            those = [header.tracer == alone for header in self.headers]
            if any(those) and not all(those):
                raise UsageError(
                    self.headers[those.index(True)].path,
                    f"{what} cannot be reported together with other traces",
                    "report it separately",
                )
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
        self.functions = Functions([])
        self.remarks: list[str] = []
        self.program: list[int] = []

    @staticmethod
    def _chunks(source: Source, clock: Clock) -> Chunks:
        try:
            return find_chunks(source.fd, source.header, clock)
        except OSError as error:
            raise InputError(source.header.path, f"cannot read: {error.strerror}") from None

    @property
    def steps(self) -> int:
        """About how many batches rows() gives."""
        return len(self.batches)

    @property
    def tracer(self) -> Tracer:
        """That of the first file."""
        return self.headers[0].tracer

    @property
    def has_returns(self) -> bool:
        """True if any of the traces tells when functions return."""
        return any(header.tracer != Tracer.FUNCTION for header in self.headers)

    @property
    def has_clock(self) -> bool:
        """True if times are nanoseconds; else they are ticks."""
        return all(header.hz for header in self.headers)

    @property
    def tids(self) -> list[int]:
        """The tid of each thread."""
        return list(self.chunks.tid.tolist())

    @property
    def pids(self) -> list[int]:
        """The pid of each thread's process."""
        return [self.headers[owner].pid for owner in self.chunks.owner.tolist()]

    @property
    def comms(self) -> list[str]:
        """The name of each thread's process."""
        return [self.headers[owner].comm for owner in self.chunks.owner.tolist()]

    def name_by(self, find: Callable[[Header], Program]) -> None:
        """Say which program each trace is of."""
        programs: list[Program] = []
        for header in self.headers:
            program = find(header)
            if program not in programs:
                programs.append(program)
            self.program.append(programs.index(program))
        self.functions = Functions(programs)

    def rows(self) -> Iterator[Rows]:
        """All rows, a batch at a time; in the end those of frames that are still open."""
        owner = self.chunks.owner
        program = np.array(self.program, np.int32)[owner] if len(owner) else owner
        points = np.array([h.tracer == Tracer.FUNCTION for h in self.headers], bool)
        matcher = Matcher(points[owner])
        several = len(self.functions.programs) > 1

        def named(rows: Rows) -> Rows:
            which = program[rows.thread] if several else 0
            rows = rows.but(function=self.functions.ids(which, rows.func))
            return self.window.narrow(rows, self.functions)

        for batch in self.batches:
            if len(batch):
                yield named(matcher.feed(batch))
        for rows in matcher.finish():
            yield named(rows)

    def notes(self) -> list[str]:
        """Notes on what is not as it should be, a clause each, and ``remarks`` of formats;
        complete when all rows are read."""
        notes = list(self.remarks)
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
