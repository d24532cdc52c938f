# SPDX-License-Identifier: MIT
"""Events to calls, against a naive reading; whatever the chunks, and however many at once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.trace import batches as batching
from ftpatch.trace import call_tree, match, repair
from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_naive import Row, Sums, read, sums
from tests.support.trace_writer import BASE, ENTRY, EXIT, LEFT, TIME, Thread, TraceFile

FUNCS = [5, 37, 69, 101]
ANY = st.one_of(
    st.tuples(st.just(ENTRY), st.sampled_from(FUNCS)),
    st.tuples(st.just(EXIT), st.sampled_from(FUNCS)),
    st.tuples(st.just(LEFT), st.integers(0, 5)),
)


@st.composite
def well_formed(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Calls that return, but for those that are still open."""
    out: list[tuple[int, int]] = []
    stack: list[int] = []
    for up in draw(st.lists(st.booleans(), max_size=60)):
        if up or not stack:
            stack.append(draw(st.sampled_from(FUNCS)))
            out.append((ENTRY, stack[-1]))
        else:
            out.append((EXIT, stack.pop()))
    return out


@st.composite
def files(draw: st.DrawFn) -> TraceFile:
    """Threads of calls that make sense, or of events that do not."""
    threads = []
    for tid in range(100, 100 + draw(st.integers(1, 3))):
        source = draw(st.sampled_from([well_formed(), st.lists(ANY, max_size=40)]))
        time, thread = draw(st.integers(0, 50)), Thread(tid, per=draw(st.integers(1, 30)))
        for kind, func in draw(source):
            time += draw(st.integers(0, 9))
            thread.add(kind, func, time)
        threads.append(thread)
    return TraceFile(threads, chunk_size=draw(st.sampled_from([40, 64, 296, 4096])))


def _rows(path: Path) -> dict[int, list[Row]]:
    """By thread, from JSON; times over all of them must rise."""
    out: dict[int, list[Row]] = {}
    result = ftpatch("report", "--json", path)
    assert result.code == 0, result
    times = [row["time"] for row in result.json]
    assert times == sorted(times)
    for row in result.json:
        func = int(row["address"], 16) - BASE + 1
        values = (row["event"], func, row["time"], row["depth"], row.get("duration"))
        out.setdefault(row["tid"], []).append(Row(*values))
    return out


def _check_sums(file: TraceFile, path: Path) -> None:
    expected: dict[int, Sums] = {}
    stacks: Counter[str] = Counter()
    for thread in file.threads:
        by_func, folded = sums(thread.events)
        for func, own in by_func.items():
            sum_ = expected.setdefault(func, Sums())
            sum_.hits += own.hits
            sum_.total += own.total
            sum_.own += own.own
        for way, ns in folded.items():
            stacks[";".join(hex(BASE + func - 1) for func in way)] += ns
    result = ftpatch("report", "--format", "profile", path)
    got = {}
    told = [line for line in result.out.splitlines() if not line.startswith("#")]
    for line in told[2:]:
        cells = line.split()
        got[int(cells[-1], 16) - BASE + 1] = (int(cells[0]), _ns(cells[1]), _ns(cells[5]))
    assert got == {f: (s.hits, s.total, s.own) for f, s in expected.items() if s.hits or s.total}
    folded_out = ftpatch("report", "--format", "folded", path).out.splitlines()
    assert dict(line.rsplit(" ", 1) for line in folded_out) == {
        way: str(ns)
        for way, ns in stacks.items()
        if ns or not any(other.startswith(f"{way};") for other in stacks)  # what came last, a crash
    }


def _ns(text: str) -> int:
    return round(float(text) * 1000)


@settings(max_examples=scaled(150, 15))
@given(files(), st.sampled_from([64, 128, 1 << 18]))
def test_rows_and_sums_are_those_of_a_naive_reading(
    tmp_path: Path, file: TraceFile, limit: int
) -> None:
    path = file.write(tmp_path / "trace")
    with mock.patch.object(batching, "BATCH_WORDS", limit), mock.patch.object(call_tree, "FEW", 2):
        assert _rows(path) == {t.tid: read(t.events) for t in file.threads if read(t.events)}
        _check_sums(file, path)


def test_a_call_tree_comes_back(tmp_path: Path) -> None:
    thread = Thread(1, per=7)
    time = 0
    for number in range(2000):
        time += 10
        up = number % 7 < 4
        thread.add(ENTRY if up else LEFT, FUNCS[number % 4] if up else 1, time)
    file = TraceFile([thread])
    assert _rows(file.write(tmp_path / "trace")) == {1: read(thread.events)}


def test_ticks_count_from_the_last_event_time(tmp_path: Path) -> None:
    thread = Thread(1).add(ENTRY, "main", 5).add(TIME, 0, 0, 1 << 40)
    thread.add(EXIT, "main", 0)
    (rows,) = _rows(TraceFile([thread]).write(tmp_path / "trace")).values()
    assert [row.time for row in rows] == [5, 1 << 40]


def test_an_exit_without_an_entry_is_of_its_own_thread(tmp_path: Path) -> None:
    """Also where another thread has an open frame of that function."""
    threads = [Thread(100).add(ENTRY, "main", 0), Thread(101).add(EXIT, "main", 1)]
    rows = _rows(TraceFile(threads).write(tmp_path / "trace"))
    assert rows == {thread.tid: read(thread.events) for thread in threads}


def test_a_missing_chunk_leaves_what_was_open_in_it(tmp_path: Path) -> None:
    thread = Thread(1, per=2)
    for number in range(6):
        thread.add(ENTRY, FUNCS[number % 4], number * 10)
    for number in range(5, -1, -1):
        thread.add(EXIT, FUNCS[number % 4], 100 - number)
    raw = bytearray(TraceFile([thread], chunk_size=64).build())
    raw[4096 + 3 * 64 : 4096 + 4 * 64] = bytes(64)  # the exits of the two innermost
    path = tmp_path / "trace"
    path.write_bytes(raw)
    (rows,) = _rows(path).values()
    assert [row.event for row in rows] == ["entry"] * 6 + ["left"] * 2 + ["exit"] * 4
    assert [row.depth for row in rows[6:]] == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("most", [1, 3])
def test_what_is_remembered_has_a_limit(tmp_path: Path, most: int) -> None:
    thread = Thread(1, per=3)
    for number in range(40):
        thread.add(ENTRY, FUNCS[number % 4], number)
    thread.add(LEFT, 9, 50).add(EXIT, FUNCS[0], 60).add(EXIT, FUNCS[0], 61)
    path = TraceFile([thread]).write(tmp_path / "trace")
    with (
        mock.patch.object(match, "MAX_OPEN", most),
        mock.patch.object(repair, "MAX_SUSPENDED", most),
        mock.patch.object(call_tree, "MAX_DEPTH", most),
        mock.patch.object(call_tree, "MAX_NODES", most),
        mock.patch.object(batching, "BATCH_WORDS", 64),
    ):
        for form in ("json", "folded", "profile", "function_graph", "flamegraph", "html"):
            result = ftpatch("report", path, "--format", form)
            assert result.code == 0, result
    assert "main" not in result.err


def test_a_reused_tid_is_another_thread(tmp_path: Path) -> None:
    first = Thread(7).add(ENTRY, "main", 0)
    second = Thread(7).add(ENTRY, "parse", 100).add(EXIT, "parse", 130)
    path = TraceFile([first, second]).write(tmp_path / "trace")
    assert [row["depth"] for row in ftpatch("report", "--json", path).json] == [0, 0, 0]


def test_rows_are_objects_without_more(tmp_path: Path) -> None:
    thread = Thread(7).add(ENTRY, "main", 3)
    line = ftpatch("report", "--json", TraceFile([thread]).write(tmp_path / "trace")).out
    assert json.loads(line) == {
        "pid": 100,
        "tid": 7,
        "time": 3,
        "depth": 0,
        "event": "entry",
        "function": hex(BASE + 4),
        "address": hex(BASE + 4),
    }
