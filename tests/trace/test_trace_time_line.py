# SPDX-License-Identifier: MIT
"""Calls in order and trees that unfold, against readings that anyone can check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.api.report_programs import Programs
from ftpatch.api.report_sources import open_events
from ftpatch.trace import batches as batching
from ftpatch.trace import match
from ftpatch.trace.outline import Outline
from ftpatch.trace.rows import Kind
from ftpatch.trace.time_line import TimeLine, read_time_line
from ftpatch.trace.window import Window
from tests.support import trace_naive
from tests.support.sampling import scaled
from tests.support.trace_writer import BASE, ENTRY, EXIT, FUNCTIONS, Thread, TraceFile, site
from tests.trace.test_trace_reading import files

Call = tuple[int, int, int, int | None]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _read(file: TraceFile, window: Window) -> tuple[TimeLine, list[int], list[int]]:
    events = open_events([file.write(Path("trace"))], window)
    try:
        events.recording.name_by(Programs(None, tell=lambda _: None).of)
        tids = events.recording.tids
        found = read_time_line(events.rows(), len(tids), window)
        return found, events.recording.functions.address, tids
    finally:
        events.close()


def _naive(events: Sequence[tuple[int, ...]]) -> list[Call]:
    """Code, begin, depth and time of a thread's calls, None for one that did not return."""
    calls: list[Call] = []
    stack: list[int] = []
    for row in trace_naive.read(events):
        if row.event == "entry":
            stack.append(len(calls))
            calls.append((row.func, row.time, row.depth, None))
        elif row.depth < len(stack):  # else it returned after it was left
            call = stack.pop()
            if row.event == "exit":
                calls[call] = (*calls[call][:3], row.duration)
    return calls


def _told(line: TimeLine, addresses: Sequence[int], thread: int) -> list[Call]:
    part = line.of(thread)
    columns = (line.function, line.begin, line.level, line.duration, line.end)
    rows = zip(*(column[part].tolist() for column in columns), strict=True)
    return [
        (addresses[function] - BASE + 1, begin, level, lasted if end == Kind.LEAVE else None)
        for function, begin, level, lasted, end in rows
    ]


@settings(max_examples=scaled(150, 30), deadline=None)
@given(files(), st.sampled_from([64, 1 << 18]))
def test_calls_are_those_of_a_naive_reading(file: TraceFile, words: int) -> None:
    with mock.patch.object(batching, "BATCH_WORDS", words):
        line, codes, tids = _read(file, Window())
    wanted = {thread.tid: _naive(thread.events) for thread in file.threads if thread.events}
    assert {tid: _told(line, codes, number) for number, tid in enumerate(tids)} == wanted
    assert len(line) == sum(map(len, wanted.values()))
    for call in range(len(line)):
        thread = line.thread_of(call)
        assert line.of(thread).start <= call < line.of(thread).stop


def _threads() -> TraceFile:
    """Two threads, whose calls begin at 0, 10, ... and at 5, 15, ..."""
    threads = [Thread(7, per=3), Thread(9)]
    for number in range(10):
        for offset, thread in zip((0, 5), threads, strict=True):
            thread.add(ENTRY, FUNCTIONS[number % 3], number * 10 + offset)
            thread.add(EXIT, FUNCTIONS[number % 3], number * 10 + offset + 1 + number % 4)
    return TraceFile(threads)


def test_moments_and_the_longest_call() -> None:
    line, codes, _ = _read(_threads(), Window())
    assert [line.at(0, moment) for moment in (-5, 0, 9, 10, 95, 1 << 61)] == [0, 0, 0, 1, 9, 9]
    assert [line.at(1, moment) for moment in (0, 5, 14, 15)] == [10, 10, 10, 11]
    main = codes.index(BASE - 1 + site("main"))
    begins = line.begin[line.longest(main)]  # calls 0, 3, 6 and 9 take 1, 4, 3 and 2
    assert begins in (30, 35)
    assert line.longest(99) == -1


def test_a_part_of_the_time() -> None:
    line, _, _ = _read(_threads(), Window(span=(20, 40)))
    assert line.begin.tolist() == [20, 30, 40, 25, 35]


def test_of_very_many_open_frames_the_innermost_end() -> None:
    thread = Thread(1, per=3)
    for number in range(3):
        thread.add(ENTRY, FUNCTIONS[number], number * 10)
    for number in range(2, -1, -1):
        thread.add(EXIT, FUNCTIONS[number], 100 - number)
    with mock.patch.object(batching, "BATCH_WORDS", 64), mock.patch.object(match, "MAX_OPEN", 2):
        line, _, _ = _read(TraceFile([thread], chunk_size=64), Window())
    assert line.duration.tolist() == [-1, 89, 78]
    assert line.end.tolist() == [Kind.POINT, Kind.LEAVE, Kind.LEAVE]


def test_no_calls() -> None:
    line, _, tids = _read(TraceFile([]), Window())
    assert (len(line), tids, line.longest(0)) == (0, [], -1)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Parents before their children, functions and times."""
    size = draw(st.integers(1, 25))
    parent = [draw(st.integers(-1, node - 1)) for node in range(size)]
    function = [draw(st.integers(0, 4)) for _ in range(size)]
    return parent, function, [draw(st.integers(0, 9)) for _ in range(size)]


class _Naive:
    """The same as an outline, from the top each time."""

    def __init__(self, parent: list[int], function: list[int], time: list[int]) -> None:
        self.parent, self.function, self.time = parent, function, time
        self.unfolded = set[int]()

    def inside(self, node: int) -> list[int]:
        nodes = [one for one, outer in enumerate(self.parent) if outer == node]
        return sorted(nodes, key=lambda one: (-self.time[one], self.function[one]))

    def lines(self, node: int = -1, *, every: bool = False) -> list[int]:
        out = []
        for one in self.inside(node):
            out.append(one)
            if every or one in self.unfolded:
                out += self.lines(one, every=every)
        return out

    def fold(self, node: int) -> None:
        self.unfolded -= {node, *self.lines(node, every=True)}


def _outline(naive: _Naive) -> Outline:
    columns = (np.array(column, np.int64) for column in (naive.parent, naive.function, naive.time))
    parent, function, time = columns
    return Outline(parent, function, np.ones(len(parent), np.int64), time)


@settings(max_examples=scaled(200, 40), deadline=None)
@given(trees(), st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20))
def test_unfolding_shows_what_a_naive_walk_does(
    tree: tuple[list[int], list[int], list[int]], steps: list[tuple[int, bool]]
) -> None:
    naive = _Naive(*tree)
    outline = _outline(naive)
    assert outline.whole == sum(naive.time[node] for node in naive.inside(-1))
    for which, unfold in steps:
        line = which % len(outline)
        node = int(outline.shown[line])
        if unfold:
            outline.unfold(line)
            naive.unfolded |= {node} if naive.inside(node) else set()
        else:
            outline.fold(line)
            naive.fold(node)
        assert outline.shown.tolist() == naive.lines()
        for line, node in enumerate(outline.shown.tolist()):
            assert outline.children(node) == len(naive.inside(node))
            assert outline.is_unfolded(node) == (node in naive.unfolded)
            outer = outline.outer_line(line)
            assert outline.shown[outer] == (naive.parent[node] if naive.parent[node] >= 0 else node)


@settings(max_examples=scaled(200, 40), deadline=None)
@given(trees(), st.integers(0, 4), st.booleans())
def test_a_search_goes_through_folded_nodes(
    tree: tuple[list[int], list[int], list[int]], function: int, back: bool
) -> None:
    naive = _Naive(*tree)
    outline = _outline(naive)
    chosen = np.arange(5) == function
    every = [node for node in naive.lines(every=True) if naive.function[node] == function]
    line, found = 0, []
    for _ in every:
        following = outline.next(line, chosen, back=back)
        assert following is not None
        line = following
        found.append(int(outline.shown[line]))
    if not every:
        assert outline.next(0, chosen, back=back) is None
        return
    first = every.index(found[0])
    around = every[first:] + every[:first] if not back else every[first::-1] + every[:first:-1]
    assert found == around
    if not back and naive.function[naive.lines()[0]] != function:
        assert first == 0
