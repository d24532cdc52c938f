# SPDX-License-Identifier: MIT
"""Names and times in text reports, and lines made in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import objects
from ftpatch.names.parameters import SIGNATURE
from ftpatch.names.short_names import short_name
from ftpatch.trace.by_process import process_roots
from ftpatch.trace.call_tree import Tree, grow
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import EventSource, Recording
from ftpatch.trace.stack_tree import access_counts, hit_counts, stack_tree
from ftpatch.trace.symbolize import Functions

__all__ = [
    "Callers",
    "Strings",
    "Style",
    "ThreadTexts",
    "called",
    "returned",
    "strings",
    "time_text",
]

Strings = NDArray[np.object_]
ERRORS = 4095
"""The largest error number that a return value may be (MAX_ERRNO of the kernel's err.h)."""


@dataclass
class Style:
    """``clean`` makes text from a file safe for a terminal; ``notes`` are the clauses at the top of
    a text report; ``progress`` shows how many batches have been read; ``short``: names have an
    ellipsis for template arguments, and not what templates return."""

    clean: Callable[[str], str]
    notes: Sequence[str] = ()
    progress: Callable[[Iterator[Rows], int], Iterator[Rows]] = lambda rows, _: rows
    short: bool = False
    _names: list[str] = field(default_factory=list)

    def rows(self, source: EventSource) -> Iterator[Rows]:
        """The rows of a source, with progress if they are read incrementally."""
        return self.progress(source.rows(), source.steps) if source.steps else source.rows()

    def tree(self, source: EventSource, rows: Iterator[Rows] | None = None) -> Tree:
        """The call tree of a source, of its ``rows`` if they are being read, of several processes
        below their names; a remark notes if it was too large to keep whole."""
        recording = source.recording
        rows = self.rows(source) if rows is None else rows
        tree = grow(rows, recording.window, process_roots(recording))
        if tree.merged:
            recording.remarks.append(
                f"more than {len(tree.parent)} different stacks: calls on further stacks count as "
                "part of their callers"
            )
        return tree

    def paths(self, source: EventSource) -> Tree:
        """The stacks of a source's hits or accesses as a tree, if they were recorded, else its call
        tree."""
        if not source.has_stacks:
            return self.tree(source)
        hits, accesses = source.hits(), source.accesses()
        if accesses is not None:
            return stack_tree(access_counts(accesses), source.recording)
        assert hits is not None
        return stack_tree(hit_counts(hits), source.recording)

    def header(self, *, tracer: str = "") -> Iterator[str]:
        """The header of text reports: the tracer, and the notes."""
        yield f"# tracer: {tracer}\n#\n" if tracer else ""
        yield from (f"# {note}\n" for note in self.notes)
        yield "#\n" if self.notes else ""

    def names(self, functions: Functions) -> list[str]:
        """Names of all functions, as they are shown."""
        self._names += map(self.shown, functions.name[len(self._names) :])
        return self._names

    def shown(self, name: str) -> str:
        """A function's name as it is shown."""
        return self.clean(short_name(name) if self.short else name)


class ThreadTexts:
    """A text of each thread of a recording, made anew when that has grown. ``make`` returns
    them."""

    def __init__(self, recording: Recording, make: Callable[[], Sequence[str]]) -> None:
        self._recording, self._make = recording, make
        self._size = (0, 0)
        self._texts = np.empty(0, object)

    def of(self, thread: NDArray[np.int32]) -> Strings:
        """The text of each, object[n]."""
        return np.asarray(self.all()[thread], object)

    def one(self, thread: int) -> str:
        """The text of one."""
        return str(self.all()[thread])

    def all(self) -> Strings:
        """Those of all threads, object[t]."""
        size = len(self._recording.tids), len(self._recording.headers)
        if size != self._size:
            self._size, self._texts = size, objects(self._make())
        return self._texts


class Callers:
    """Names of the places that calls return to."""

    def __init__(self, recording: Recording, clean: Callable[[str], str]) -> None:
        self._recording, self._clean = recording, clean

    def of(self, rows: Rows) -> list[str]:
        """One for each row; empty where unknown."""
        out = np.full(len(rows), "", object)
        file = self._recording.owner[rows.thread]
        known = (rows.flags & Rows.VALUE) > 0
        for number in np.unique(file[known]).tolist():
            at = np.flatnonzero(known & (file == number))
            address, index = np.unique(rows.value[at], return_inverse=True)
            program = self._recording.program_of(number)
            header = self._recording.headers[number]
            found = program.callers(address, header.bias, header.libraries)
            names = [self._clean(name) for name in found]
            out[at] = np.array(names, object)[index]
        return list(out.tolist())


def strings(values: NDArray[np.int64], make: Callable[[int], str]) -> Strings:
    """Format each number, object[n], once per distinct value."""
    distinct, index = np.unique(values, return_inverse=True)
    made = np.empty(len(distinct), object)
    made[:] = [make(value) for value in distinct.tolist()]
    return np.asarray(made[index], object)


def called(name: str, args: str) -> str:
    """Format a call like ftrace; if a C++ name has its parameters, they are the parentheses."""
    return name if not args and SIGNATURE.search(name) else f"{name}({args})"


def returned(value: int) -> str:
    """Format a return value like print_graph_retval(): hexadecimal, unless it may be an error, 32
    or 64 bits wide."""
    for bits in (32, 64):
        if 0 < (1 << bits) - value <= ERRORS:
            return str(value - (1 << bits))
    return hex(value)


def time_text(ns: int, known: bool = True) -> str:
    """Format microseconds in seven digits, like trace_print_graph_duration(); ticks, if the clock's
    rate is not ``known``."""
    if not known:
        return f"{ns} tick{'s' * (ns != 1)}".ljust(11) + " "
    whole = str(ns // 1000)
    if len(whole) < 7:
        whole += f".{ns % 1000:03}"[: 8 - len(whole)]
    return f"{whole} us ".ljust(12)
