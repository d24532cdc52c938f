# SPDX-License-Identifier: MIT
"""Sources for report formats: recorded data of one kind, with its metadata.

A slice registers its SourceKind in ``SOURCES`` of its ``events.py``; nothing here knows a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.accesses import Accesses
from ftpatch.trace.header import Tracer
from ftpatch.trace.hits import Hits
from ftpatch.trace.losses import Loss
from ftpatch.trace.mapped import Mapped
from ftpatch.trace.rows import Rows
from ftpatch.trace.symbolize import Functions, Program
from ftpatch.trace.totals import Totals
from ftpatch.trace.window import Window

__all__ = ["Data", "EventSource", "Origin", "Recording", "SourceKind"]


class Data(Flag):
    """Kinds of recorded data."""

    CALLS = auto()
    """Calls of functions, as batches of rows."""
    SUMS = auto()
    """Hits and times of functions, instead of events."""
    HITS = auto()
    """Instants, or calls recorded when they return, with columns of values."""
    ACCESSES = auto()
    """Accesses to variables."""


class Origin(Protocol):
    """Metadata of one file or stream: the recorded process, its program and clock. Trace files have
    it in their headers."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def image(self) -> str:
        """Path of the program; empty if unknown."""

    @property
    def image_id(self) -> bytes:
        """SHA-256 of the program; zeros or empty if unknown."""

    @property
    def pid(self) -> int:
        """Process id."""

    @property
    def comm(self) -> str:
        """Name of the process (comm)."""

    @property
    def base(self) -> int:
        """Link address that functions count from."""

    @property
    def bias(self) -> int:
        """Distance from link addresses to memory addresses."""

    @property
    def hz(self) -> int:
        """Ticks per second; 0 if unknown."""

    @property
    def libraries(self) -> tuple[Mapped, ...]:
        """Libraries traced with the program."""

    @property
    def objects(self) -> tuple[Mapped, ...]:
        """Libraries loaded with it."""

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses of each thread that has any."""

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing, one clause each."""


@dataclass(kw_only=True)
class Recording:
    """Metadata common to all sources: the ``headers`` of their files, the ``tids`` of threads and
    ``owner``, int32[t]: the header of each thread's process; ``program``: each header's index among
    the programs of ``functions``; ``remarks``: formats' notes on their own limits."""

    headers: Sequence[Origin]
    tids: list[int]
    owner: NDArray[np.int32]
    window: Window
    functions: Functions = field(default_factory=lambda: Functions([]))
    program: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _find: Callable[[Origin], Program] | None = None

    @property
    def has_clock(self) -> bool:
        """True if times are nanoseconds, false if ticks."""
        return all(header.hz for header in self.headers)

    @property
    def pids(self) -> list[int]:
        """The pid of each thread's process."""
        return [self.headers[owner].pid for owner in self.owner.tolist()]

    @property
    def comms(self) -> list[str]:
        """The name of each thread's process."""
        return [self.headers[owner].comm for owner in self.owner.tolist()]

    def name_by(self, find: Callable[[Origin], Program]) -> None:
        """Find each header's program, and later those of others that come."""
        self._find = find
        for number in range(len(self.headers)):
            self.name(number)

    def name(self, number: int) -> None:
        """Find the program of a header that has come, or has changed."""
        if self._find is None:
            return
        program = self._find(self.headers[number])
        programs = self.functions.programs
        if program not in programs:
            self.functions.programs = programs = [*programs, program]
        self.program += [0] * (number + 1 - len(self.program))
        self.program[number] = programs.index(program)

    def program_of(self, header: int) -> Program:
        """The program of a header, by its number."""
        return self.functions.programs[self.program[header]]


class EventSource(Protocol):
    """Recorded data of one kind. ``rows``, ``hits``, ``sums`` and ``accesses`` provide what the
    kind's ``data`` lists; hits that are calls have ``rows`` too."""

    @property
    def kind(self) -> SourceKind:
        """The kind it is registered as."""

    @property
    def recording(self) -> Recording:
        """Processes, threads, names and the clock."""

    @property
    def has_returns(self) -> bool:
        """True if it records returns."""

    @property
    def has_stacks(self) -> bool:
        """True if it records the calls that led to hits."""

    @property
    def steps(self) -> int:
        """Approximate number of batches of rows; 0 if not read in batches."""

    def rows(self) -> Iterator[Rows]:
        """Calls, in batches."""

    def hits(self) -> Hits | None:
        """Hits, None if the kind has none."""

    def sums(self, header: int | None = None) -> Totals | None:
        """Sums recorded instead of events, those of one header's process or of all; None if the
        kind has none."""

    def tally(self) -> tuple[Totals, list[Totals]] | None:
        """Sums over the functions of its calls, and over those of each header's process, without
        rows; None if only rows lead to them."""

    def accesses(self) -> Accesses | None:
        """Accesses to variables, None if the kind has none."""

    def notes(self) -> list[str]:
        """Irregularities found so far, one clause each; complete at the end."""

    def close(self) -> None:
        """Close the files."""


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A kind of source, recorded by ``tracers``; a stream's has none. ``what``: noun phrase for
    messages; ``default``: name of its default report; ``no_returns`` and ``hint``: why some sources
    have no returns, and a remedy. ``open`` takes a Trace of reader.py, ``follow`` a Followed of
    followed.py; None: there are no single events."""

    what: str
    data: Data
    default: str
    open: Callable[..., EventSource] | None = None
    follow: Callable[..., EventSource] | None = None
    tracers: tuple[Tracer, ...] = ()
    returns: bool = True
    no_returns: str = ""
    hint: str = ""
