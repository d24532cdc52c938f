# SPDX-License-Identifier: MIT
"""Sums without rows are those that rows lead to, to the byte; what is irregular is left to rows."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.trace import batches as batching
from ftpatch.trace import events as reading
from ftpatch.trace.reader import Trace
from ftpatch.trace.symbolize import Program
from ftpatch.trace.tally import tally
from ftpatch.trace.totals import Totals
from ftpatch.trace.window import Window
from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_writer import (
    ENTRY,
    ENTRY_ARGS,
    ENTRY_FROM,
    EXIT,
    EXIT_VALUE,
    FUNCTION,
    FUNCTIONS,
    LEFT,
    TIME,
    Thread,
    TraceFile,
    program,
)

FURTHER = {ENTRY_FROM: 1, ENTRY_ARGS: 6, EXIT_VALUE: 1}
"""Words after an event's first."""


@st.composite
def threads(draw: st.DrawFn, tid: int) -> Thread:
    """One that calls and returns, in chunks of a few events; it ends anywhere, and its clock may
    go back."""
    thread, stack, time = Thread(tid, per=draw(st.integers(1, 9))), list[str](), 50
    for step in draw(st.lists(st.sampled_from([*FUNCTIONS[:4], "", "", "", "time"]), max_size=30)):
        time = max(time + draw(st.integers(-9, 900)), 0)
        kind = draw(
            st.sampled_from([ENTRY, ENTRY_FROM, ENTRY_ARGS] if step else [EXIT, EXIT_VALUE])
        )
        more = [7] * FURTHER.get(kind, 0)
        if step == "time":
            thread.events.append((TIME, 0, 0, time))
        elif step:
            stack.append(step)
            thread.add(kind, step, time, *more)
        elif stack:
            thread.add(kind, stack.pop(), time, *more)
    return thread


@st.composite
def processes(draw: st.DrawFn) -> list[TraceFile]:
    """A program and perhaps its child, of a few threads each, on any clock."""
    hz = draw(st.sampled_from([10**9, 2_399_999_999, 0, 24_000_000]))
    out = []
    for number in range(draw(st.integers(1, 2))):
        held = [
            draw(threads(100 * number + tid)) for tid in range(100, 100 + draw(st.integers(1, 3)))
        ]
        head: dict[str, int | bytes] = {
            "hz": hz,
            "pid": 100 + 100 * number,
            "realtime": 1000 * number,
        }
        out.append(TraceFile(held, header=head))
    return out


@pytest.mark.scaled
@settings(max_examples=scaled(150, 20), deadline=None)
@given(processes(), st.sampled_from([64, 1 << 17]))
def test_the_sums_of_rows(tmp_path: Path, files: list[TraceFile], limit: int) -> None:
    image = program(tmp_path / "prog")
    paths = []
    for number, file in enumerate(files):
        file.header["path"] = bytes(image)
        paths.append(file.write(tmp_path / f"trace.{number}"))
    with mock.patch.object(batching, "BATCH_WORDS", limit):
        assert _tally(*paths) is not None or not any(t.events for f in files for t in f.threads)
        told = _profile(*paths)
        with mock.patch.object(reading, "tally", lambda _: None):
            assert _profile(*paths) == told


def _tally(*paths: Path, window: Window | None = None) -> tuple[Totals, list[Totals]] | None:
    trace = Trace(paths, window or Window())
    try:
        image = Program(None, 0)
        trace.recording.name_by(lambda _: image)
        return tally(trace)
    finally:
        trace.close()


def _profile(*paths: Path) -> str:
    done = ftpatch("report", "--no-children", "--format", "profile", *paths)
    assert not done.code, done.err
    return done.out


def _simple() -> Thread:
    return Thread(100).add(ENTRY, "main", 10).add(ENTRY, "walk", 20).add(EXIT, "walk", 30)


@pytest.mark.parametrize(
    ("thread", "header"),
    [
        (_simple().add(LEFT, 1, 40), {}),
        (_simple().add(EXIT, "parse", 40), {}),
        (_simple().add(EXIT, "main", 40).add(EXIT, "main", 50), {}),
        (_simple().add(ENTRY_FROM, "walk", 40), {}),  # the chunk ends before its further word
        (_simple().add(0, "walk", 40), {}),
        (_simple().add(ENTRY, 1 << 25, 40), {}),
        (_simple().add(ENTRY, "walk", 1 << 32).add(TIME, 0, 0, 1 << 60).add(EXIT, "walk", 5), {}),
        (_simple(), {"tracer": FUNCTION}),
    ],
    ids=["unwound", "other", "nothing-open", "torn", "invalid", "far", "late", "no-returns"],
)
def test_what_is_irregular_is_left_to_rows(
    tmp_path: Path, thread: Thread, header: dict[str, int | bytes]
) -> None:
    head: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog")), **header}
    path = TraceFile([thread], chunk_size=64, header=head).write(tmp_path / "trace")
    assert _tally(path) is None
    assert "main" in _profile(path)


def test_filters_are_left_to_rows(tmp_path: Path) -> None:
    path = TraceFile([_simple()]).write(tmp_path / "trace")
    assert _tally(path) is not None
    for window in (Window(span=(0, 25)), Window(globs=("w*",)), Window(depth=1), Window(least=1)):
        assert _tally(path, window=window) is None


def test_a_lost_chunk_is_left_to_rows(tmp_path: Path) -> None:
    thread = Thread(100, per=1)
    for time, name in enumerate(FUNCTIONS[:3]):
        thread.add(ENTRY, name, time)
    path = TraceFile([thread]).write(tmp_path / "trace")
    held = path.read_bytes()
    path.write_bytes(held[:8192] + held[12288:])
    assert _tally(path) is None


def test_deep_stacks_and_many_threads(tmp_path: Path) -> None:
    """Frames are kept while other threads' chunks are read, and there is room for all."""
    held = []
    for tid in range(100, 120):
        thread = Thread(tid, per=64)
        for time in range(1000):
            thread.add(ENTRY, "walk" if time % 3 else "main", 50 * time + tid)
        for time in range(1000 - tid):
            thread.add(EXIT, "walk" if (999 - time) % 3 else "main", 50 * (1000 + time) + tid)
        held.append(thread)
    file = TraceFile(held, header={"path": bytes(program(tmp_path / "prog"))})
    path = file.write(tmp_path / "trace")
    found = _tally(path)
    assert found is not None
    assert np.sum(found[0].hits) == 20 * 1000
    told = _profile(path)
    with mock.patch.object(reading, "tally", lambda _: None):
        assert _profile(path) == told


def test_a_chunk_costs_the_same_in_a_deep_stack(tmp_path: Path) -> None:
    """Ten times the chunks, each of one more call, take ten times as long, not 100."""
    times = []
    for number in (10_000, 100_000):
        thread = Thread(100)
        for time in range(number):
            thread.add(ENTRY, "walk", time)
        path = TraceFile([thread], chunk_size=40).write(tmp_path / "trace")
        begun = process_time()
        found = _tally(path)
        times.append(process_time() - begun)
        assert found is not None and found[0].hits.tolist() == [number]
    assert times[1] < 20 * times[0]
