"""Sources: recorded data of one kind, and what is known of it, for report formats.

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
from ftpatch.trace.mapped import Mapped
from ftpatch.trace.rows import Rows
from ftpatch.trace.symbolize import Functions, Program
from ftpatch.trace.totals import Totals
from ftpatch.trace.window import Window

__all__ = ["Data", "EventSource", "Origin", "Recording", "SourceKind"]


class Data(Flag):
    """Kinds of recorded data."""

    CALLS = auto()
    """Calls of functions, as rows in batches."""
    SUMS = auto()
    """Hits and times of functions, in place of events."""
    HITS = auto()
    """Instants, or calls known when they return, with columns of values."""
    ACCESSES = auto()
    """Accesses to variables."""


class Origin(Protocol):
    """Facts of one file or stream: the process that was recorded, its program and clock. Trace
    files have them in their headers."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def image(self) -> str:
        """Path of the program; empty where it is not known."""

    @property
    def image_id(self) -> bytes:
        """SHA-256 of the program; zeros or nothing where it is not known."""

    @property
    def pid(self) -> int:
        """Process."""

    @property
    def comm(self) -> str:
        """Name of the process."""

    @property
    def base(self) -> int:
        """Link address from which functions are counted."""

    @property
    def bias(self) -> int:
        """Distance from link addresses to those in memory."""

    @property
    def hz(self) -> int:
        """Ticks per second; 0 where that is not known."""

    @property
    def libraries(self) -> tuple[Mapped, ...]:
        """Libraries that were traced with the program."""

    @property
    def objects(self) -> tuple[Mapped, ...]:
        """Libraries that were loaded with it."""

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing, a clause each."""


@dataclass(kw_only=True)
class Recording:
    """Parts of all sources: the ``headers`` of their files, the ``tids`` of threads and
    ``owner``, int32[t]: which header's process each thread is of; ``program`` of each header among
    those of ``functions``; ``remarks``: what formats have to say of their own limits."""

    headers: Sequence[Origin]
    tids: list[int]
    owner: NDArray[np.int32]
    window: Window
    functions: Functions = field(default_factory=lambda: Functions([]))
    program: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def has_clock(self) -> bool:
        """True if times are nanoseconds; else they are ticks."""
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
        """Say which program each header is of."""
        programs: list[Program] = []
        for header in self.headers:
            program = find(header)
            if program not in programs:
                programs.append(program)
            self.program.append(programs.index(program))
        self.functions = Functions(programs)

    def program_of(self, header: int) -> Program:
        """The program of a header, by its number."""
        return self.functions.programs[self.program[header]]


class EventSource(Protocol):
    """Recorded data of one kind. ``rows``, ``hits``, ``sums`` and ``accesses`` give it, each where
    the kind's ``data`` says that there is such; ``rows`` is what hits with calls have, too."""

    @property
    def kind(self) -> SourceKind:
        """The kind that it is registered as."""

    @property
    def recording(self) -> Recording:
        """Processes, threads, names and the clock."""

    @property
    def has_returns(self) -> bool:
        """True if it tells when functions return."""

    @property
    def steps(self) -> int:
        """Number of batches of rows, about; 0 for what is not read in batches."""

    def rows(self) -> Iterator[Rows]:
        """Calls, a batch at a time."""

    def hits(self) -> Hits | None:
        """Hits, None where there are none by kind."""

    def sums(self) -> Totals | None:
        """Sums that were recorded in place of events, None where there are none by kind."""

    def accesses(self) -> Accesses | None:
        """Accesses to variables, None where there are none by kind."""

    def notes(self) -> list[str]:
        """Irregularities found so far, a clause each; complete at the end."""

    def close(self) -> None:
        """Close the files."""


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A kind of source: what ``tracers`` record, or a stream's without any. ``what``: noun phrase
    for messages; ``default``: name of its own report; ``no_returns`` and ``hint``: why some have no
    returns, and what helps. ``open`` takes a Trace of reader.py."""

    what: str
    data: Data
    default: str
    open: Callable[..., EventSource] | None = None
    tracers: tuple[Tracer, ...] = ()
    returns: bool = True
    no_returns: str = ""
    hint: str = ""
