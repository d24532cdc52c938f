# SPDX-License-Identifier: MIT
"""A recording for the views, each part read when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.cli.console import clean, count
from ftpatch.cli.tui.source_lines import SourceFile, read_source
from ftpatch.names.spelling import Wanted
from ftpatch.trace.around import callees, callers, outermost
from ftpatch.trace.call_tree import Tree, grow
from ftpatch.trace.outline import Outline
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Data, EventSource
from ftpatch.trace.time_line import TimeLine, read_time_line
from ftpatch.trace.totals import Totals

__all__ = ["Recorded", "Stopped", "calls_of"]

GLOB = frozenset("*?[")


class Stopped(Exception):
    """The end of a reading that nobody waits for any more."""


class Recorded:
    """A source, its sums, and its names as they may stand on a terminal. Reading is for one thread
    at a time; ``done`` of ``source.steps`` batches have been read."""

    def __init__(self, source: EventSource, totals: Totals, notes: list[str]) -> None:
        self.source, self.totals, self.notes = source, totals, notes
        self.recording = source.recording
        self.names = [clean(name) for name in self.recording.functions.name]
        self.done = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._tree: Tree | None = None
        self._time_line: TimeLine | None = None
        self._sources: dict[int, SourceFile | str] = {}

    @property
    def no_tree(self) -> str:
        """The reason why there are no callers and callees; empty if there are."""
        kind = self.source.kind
        if kind.data & Data.SUMS:
            return "a profile has sums, and no callers: trace with function_graph"
        if not self.source.has_returns:
            return ": ".join(filter(None, [kind.no_returns, kind.hint]))
        return ""

    @property
    def no_time_line(self) -> str:
        """The reason why there is no time line; empty if there is one."""
        if self.source.kind.data & Data.SUMS:
            return "a profile has sums, and no calls: trace with function_graph"
        return ""

    @property
    def title(self) -> str:
        """Files and numbers, for one line."""
        first, *others = (clean(header.path.name) for header in self.recording.headers)
        more = f" and {len(others)} more" if others else ""
        calls = count(int(self.totals.hits.sum()), "call")
        threads = len(self.recording.tids)
        return f"{first}{more}: {calls}" + (f", {count(threads, 'thread')}" if threads else "")

    def thread(self, number: int) -> str:
        """A thread, for people."""
        recording = self.recording
        name, pid = clean(recording.comms[number]), recording.pids[number]
        whose = f"{name}, pid {pid}" if pid else name
        return f"thread {recording.tids[number]} ({whose}), {number + 1} of {len(recording.tids)}"

    def matching(self, text: str) -> NDArray[np.bool_]:
        """Functions whose names contain a text, or match a glob, bool[f]."""
        lower = text.lower()
        found = np.array([lower in name.lower() for name in self.names], bool)
        if GLOB & set(text):
            wanted = Wanted(text)
            found |= wanted.match(self.names) | wanted.match(self.recording.functions.symbol)
        return found

    def call_tree(self) -> Outline:
        """All calls by their ways."""
        tree = self._grown()
        return Outline(tree.parent, tree.function, tree.hits, tree.totals())

    def around(self, function: int) -> tuple[Outline, Outline]:
        """Callers and callees of a function; as in ``report --graph``, what a recursive function
        calls counts where it was called from outside."""
        tree = self._grown()
        nodes = outermost(tree, np.arange(len(self.names)) == function)
        both = callers(tree, nodes), callees(tree, nodes)
        first, second = (Outline(one.parent, one.function, one.hits, one.time) for one in both)
        return first, second

    def time_line(self) -> TimeLine:
        """Calls in order."""
        with self._lock:
            if self._time_line is None:
                threads, window = len(self.recording.tids), self.recording.window
                self._time_line = read_time_line(self._rows(), threads, window)
            return self._time_line

    def source_of(self, function: int) -> SourceFile | str:
        """The file of a function, or the reason why there is none."""
        with self._lock:
            if function not in self._sources:
                functions = self.recording.functions
                program = functions.program_with(function)
                if program is None and len(functions.programs) == 1:
                    (program,) = functions.programs
                address = functions.address[function]
                self._sources[function] = read_source(program, address, self.names[function])
            return self._sources[function]

    def place(self, function: int) -> str:
        """A function's library, and its file and line where they were asked for."""
        functions = self.recording.functions
        library = Path(functions.library[function]).name
        return clean(" ".join(filter(None, [library, functions.source[function]])))

    def stop(self) -> None:
        """End what is still being read."""
        self._stopped = True

    def _grown(self) -> Tree:
        with self._lock:
            if self._tree is None:
                self._tree = grow(self._rows(), self.recording.window)
                if self._tree.merged:
                    self.notes.append(
                        f"more than {len(self._tree.parent)} different stacks: calls on further "
                        "stacks count as part of their callers"
                    )
            return self._tree

    def _rows(self) -> Iterator[Rows]:
        self.done = 0
        for rows in calls_of(self.source):
            if self._stopped:
                raise Stopped
            self.done += 1
            yield rows


def calls_of(source: EventSource) -> Iterator[Rows]:
    """The calls of a source; of probes those that r probes saw."""
    for rows in source.rows():
        yield rows.take(rows.kind != Kind.POINT) if source.kind.data & Data.HITS else rows
