# SPDX-License-Identifier: MIT
"""The numbers in an HTML report, against a naive reading of the same trace."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftpatch.trace import batches as batching
from ftpatch.trace import boxes
from tests.cli.test_golden import _same
from tests.support.command import Result, ftpatch
from tests.support.pages import data_of
from tests.support.sampling import scaled
from tests.support.trace_naive import Sums, read, sums
from tests.support.trace_writer import BASE, ENTRY, EXIT, Thread, TraceFile, program
from tests.trace.test_trace_formats import _graph
from tests.trace.test_trace_reading import files

Row = tuple[int, int, int, int, int]
"""Thread, level, begin, end, calls."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


@dataclass
class _Call:
    """A call, and those that it makes."""

    func: int
    level: int
    begin: int
    end: int = 0
    calls: list[_Call] = field(default_factory=list)

    @property
    def size(self) -> int:
        return 1 + sum(call.size for call in self.calls)

    @property
    def spent(self) -> int:
        return self.end - self.begin


def _calls(thread: Thread) -> list[_Call]:
    """The outermost calls of a thread; those that are open end at its last event."""
    root = _Call(0, -1, 0)
    stack = [root]
    for row in read(thread.events):
        if row.event == "entry":
            call = _Call(row.func, row.depth, row.time)
            stack[-1].calls.append(call)
            stack.append(call)
        elif row.depth < len(stack) - 1:  # else it returns although it was left
            stack.pop().end = row.time
    while len(stack) > 1:
        stack.pop().end = thread.events[-1][2]
    return root.calls


def _boxes(tid: int, calls: list[_Call], shorter: int) -> list[tuple[Row, set[int]]]:
    """Boxes with the functions that they may be named after."""
    out: list[tuple[Row, set[int]]] = []
    group: list[_Call] = []

    def end_group() -> None:
        if group:
            longest = max(call.spent for call in group)
            inside = list(group)
            for call in inside:
                inside += call.calls
            named = {call.func for call in inside if call.spent == longest}
            size = sum(call.size for call in group)
            out.append(((tid, group[0].level, group[0].begin, group[-1].end, size), named))
        group.clear()

    for call in calls:
        if call.spent >= shorter:
            end_group()
            out.append(((tid, call.level, call.begin, call.end, 1), {call.func}))
            out.extend(_boxes(tid, call.calls, shorter))
            continue
        if group and call.begin - group[-1].end >= shorter:
            end_group()
        group.append(call)
    end_group()
    return out


def _drawn(data: dict[str, Any]) -> list[tuple[Row, str]]:
    line = data["timeline"]
    tids = [thread["tid"] for thread in line["threads"]]
    bounds = [*line["first"][1:], len(line["begin"])]
    out = []
    for i, begin in enumerate(line["begin"]):
        thread = next(number for number, last in enumerate(bounds) if i < last)
        row = (tids[thread], line["level"][i], begin, begin + line["length"][i], line["calls"][i])
        out.append((row, data["names"][line["function"][i]]))
    return out


def _name(func: int) -> str:
    return hex(BASE + func - 1)


def _check_table(data: dict[str, Any], file: TraceFile) -> None:
    expected: dict[int, Sums] = {}
    spent: dict[int, list[int]] = {}
    for thread in file.threads:
        for func, own in sums(thread.events)[0].items():
            sum_ = expected.setdefault(func, Sums())
            sum_.hits += own.hits
            sum_.total += own.total
            sum_.own += own.own
        for row in read(thread.events):
            if row.event == "exit" and row.duration is not None:
                spent.setdefault(row.func, []).append(row.duration)
    table = data["table"]
    columns = [table[name] for name in ("function", "calls", "total", "own", "least", "most")]
    rows = {data["names"][row[0]]: row[1:] for row in zip(*columns, strict=True)}
    assert rows == {
        _name(f): (s.hits, s.total, s.own, min(spent.get(f, [-1])), max(spent.get(f, [-1])))
        for f, s in expected.items()
        if s.hits or s.total
    }


def _check_flame(data: dict[str, Any], file: TraceFile) -> None:
    folded: Counter[tuple[str, ...]] = Counter()
    for thread in file.threads:
        for funcs, ns in sums(thread.events)[1].items():
            folded[tuple(map(_name, funcs))] += ns
    flame = data["flame"]
    ways: list[tuple[str, ...]] = []
    for function, parent in zip(flame["function"], flame["parent"], strict=True):
        outer = ways[parent] if parent >= 0 else ()
        ways.append((*outer, data["names"][function]))
    assert {way: ns for way, ns in zip(ways, flame["own"], strict=True) if ns} == +folded
    for way, total in zip(ways, flame["time"], strict=True):
        assert total == sum(ns for other, ns in folded.items() if other[: len(way)] == way)
    assert flame["whole"] == folded.total()
    assert flame["outside"] + sum(flame["left"]) == len(folded) - len(ways)


@settings(max_examples=scaled(150, 25), deadline=None)
@given(
    files(), st.sampled_from([64, 1 << 18]), st.sampled_from([2, 5, 20, 1 << 15]), st.integers(0, 9)
)
def test_numbers_are_those_of_a_naive_reading(
    file: TraceFile, words: int, most: int, held: int
) -> None:
    path = file.write(Path("trace"))
    with (
        mock.patch.object(batching, "BATCH_WORDS", words),
        mock.patch.object(boxes, "MAX_BOXES", most),
        mock.patch.object(boxes, "MAX_HELD", held),
    ):
        result = ftpatch("report", "--format", "html", path)
    assert result.code == 0, result.err
    data = data_of(result.out)
    _check_table(data, file)
    _check_flame(data, file)
    shorter = data["timeline"]["shorter"]
    expected = [box for t in file.threads for box in _boxes(t.tid, _calls(t), shorter)]
    drawn = _drawn(data)
    assert Counter(row for row, _ in drawn) == Counter(row for row, _ in expected)
    names = {row: set(map(_name, named)) for row, named in expected}
    if len(names) == len(expected):
        assert all(name in names[row] for row, name in drawn)
    if most == 1 << 15:
        assert shorter == 0 and len(drawn) == sum(c.size for t in file.threads for c in _calls(t))
    elif len(drawn) > most:  # no fewer can be: one of each thread, as long as it takes
        assert {row[1] for row, _ in drawn} == {0}


def _short(thread: Thread, name: str, begin: int, calls: int) -> Thread:
    """Calls of a nanosecond, one apart."""
    for at in range(begin, begin + 2 * calls, 2):
        thread.add(ENTRY, name, at).add(EXIT, name, at + 1)
    return thread


def _merged(thread: Thread, most: int) -> list[Row]:
    trace = TraceFile([thread], chunk_size=64).write(Path("trace"))
    with (
        mock.patch.object(batching, "BATCH_WORDS", 64),
        mock.patch.object(boxes, "MAX_BOXES", most),
        mock.patch.object(boxes, "MAX_HELD", 0),
    ):
        return [row for row, _ in _drawn(data_of(ftpatch("report", "--format", "html", trace).out))]


def test_what_is_far_apart_stays_apart() -> None:
    thread = Thread(1).add(ENTRY, "main", 0)
    for begin in range(0, 2000, 400):
        _short(thread, "walk", begin, 3)
    groups = [(1, 1, begin, begin + 5, 3) for begin in range(0, 2000, 400)]
    assert _merged(thread.add(EXIT, "main", 2000), 6) == [(1, 0, 0, 2000, 1), *groups]


def test_what_begins_in_between_keeps_apart() -> None:
    """Also where it has not ended when the first boxes are merged."""
    thread = _short(Thread(1).add(ENTRY, "main", 0), "walk", 0, 10).add(ENTRY, "parse", 20)
    _short(thread, "alloc", 20, 10).add(EXIT, "parse", 1000).add(EXIT, "main", 1000)
    assert _merged(thread, 5) == [
        (1, 0, 0, 1000, 1),
        (1, 1, 0, 19, 10),
        (1, 1, 20, 1000, 1),
        (1, 2, 20, 39, 10),
    ]


def test_data_of_a_small_trace() -> None:
    """And that it says what is missing."""
    trace = _graph(flags=4, lost0=3, lost1=1, size=1 << 20, taken=1 << 19)
    result = ftpatch("report", "--format", "html", trace)
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in _flat(data_of(result.out))]
    _same("trace-html", Result(result.code, "".join(lines), result.err))


def _flat(data: dict[str, Any]) -> list[tuple[str, Any]]:
    out = []
    for key, value in data.items():
        inner = _flat(value) if isinstance(value, dict) else [("", value)]
        out += [(f"{key}.{name}" if name else key, one) for name, one in inner]
    return out


def test_numbers_are_those_of_other_formats_also_within_a_time() -> None:
    trace = _graph()
    for words in ([], ["--time", "0.00000999-0.01"], ["--tid", "4711", "-D", "2"]):
        data = data_of(ftpatch("report", "--format", "html", trace, *words).out)
        table, flame = data["table"], data["flame"]
        lines = ftpatch("report", "--format", "profile", trace, *words).out.splitlines()[2:]
        told = {line.split()[-1]: line.split() for line in lines}
        assert told.keys() == {data["names"][i] for i in table["function"]}
        for i, function in enumerate(table["function"]):
            cells = told[data["names"][function]]
            assert int(cells[0]) == table["calls"][i]
            for cell, ns in ((cells[1], table["total"][i]), (cells[5], table["own"][i])):
                assert float(cell) == pytest.approx(ns / 1000, rel=1e-4)
        folded = ftpatch("report", "--format", "folded", trace, *words).out.splitlines()
        own = sum(flame["own"])
        assert sum(int(line.rsplit(" ", 1)[1]) for line in folded) == flame["whole"]
        assert own > 0.999 * flame["whole"]
        if "--time" in words:
            assert min(data["timeline"]["begin"]) == 9990 and max(_ends(data)) == 10_000_000


def _ends(data: dict[str, Any]) -> list[int]:
    line = data["timeline"]
    return [begin + length for begin, length in zip(line["begin"], line["length"], strict=True)]


def _many(path: Path, calls: int) -> Path:
    """Calls of 40 ns, one of 3 us after every thousand, in one function."""
    thread, time = Thread(1).add(ENTRY, "main", 0), 0
    for number in range(1, calls):
        name, spent = ("parse", 3000) if number % 1000 == 0 else ("walk", 40)
        thread.add(ENTRY, name, time + 10).add(EXIT, name, time + 10 + spent)
        time += 10 + spent
    thread.add(EXIT, "main", time + 10)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    return TraceFile([thread], chunk_size=1 << 16, header=header).write(path)


def test_a_long_trace_makes_a_small_page() -> None:
    """Long calls are all there, and short ones counted."""
    calls = 60_000
    page = ftpatch("report", "--format", "html", _many(Path("trace"), calls)).out
    data = data_of(page)
    drawn = _drawn(data)
    assert len(drawn) <= 1 << 15 and len(page) < 1_000_000
    assert sum(row[4] for row, _ in drawn) == calls
    shorter = data["timeline"]["shorter"]
    assert 40 < shorter <= 64
    assert Counter(name for row, name in drawn if row[4] == 1) == {"main": 1, "parse": 59}
    assert data["timeline"]["deeper"] == 0


def test_processes_are_apart() -> None:
    for pid, comm in ((7, b"parent"), (8, b"child")):
        threads = [
            Thread(tid).add(ENTRY, "main", 5).add(EXIT, "main", 9) for tid in (pid, pid + 20)
        ]
        header: dict[str, int | bytes] = {"pid": pid, "comm": comm, "path": b"prog"}
        TraceFile(threads, header=header).write(Path(f"trace{pid}"))
    line = data_of(ftpatch("report", "--format", "html", "trace7", "trace8").out)["timeline"]
    assert [(one["comm"], one["pid"], one["tid"]) for one in line["threads"]] == [
        *(("parent", 7, 7), ("parent", 7, 27)),
        *(("child", 8, 8), ("child", 8, 28)),
    ]
    assert line["first"] == [0, 1, 2, 3] and line["begin"] == [5] * 4


def test_levels_without_end() -> None:
    depth = 1500
    thread = Thread(1)
    for level in range(depth):
        thread.add(ENTRY, "main", level)
    for level in range(depth):
        thread.add(EXIT, "main", depth + level)
    trace = TraceFile([thread]).write(Path("trace"))
    line = data_of(ftpatch("report", "--format", "html", trace).out)["timeline"]
    assert max(line["level"]) == 1023 and line["deeper"] == depth - 1024


def test_damage_is_said_on_the_page() -> None:
    thread = Thread(1, per=4)
    for number in range(12):
        thread.add(ENTRY if number % 2 == 0 else EXIT, "main", number * 10)
    raw = bytearray(TraceFile([thread], chunk_size=128).build())
    raw[4096 + 128 : 4096 + 132] = b"what"
    Path("trace").write_bytes(raw)
    for form in ("html", "flamegraph"):
        result = ftpatch("report", "--format", form, "trace")
        assert result.code == 0 and "1 corrupt chunk skipped" in data_of(result.out)["notes"]
    Path("cut").write_bytes(raw[:-64])
    notes = data_of(ftpatch("report", "--format", "html", "cut").out)["notes"]
    assert any("truncated" in note for note in notes)


def test_names_are_data() -> None:
    evil = "</script><script>alert(1)</script>"
    names = ("main", evil, "<!--<script>", "{{script}}", *("rest" + c for c in "abcd"))
    thread = Thread(1)
    for name in ("main", "parse", "read_line", "walk"):
        thread.add(ENTRY, name, 0)
    for name in ("walk", "read_line", "parse", "main"):
        thread.add(EXIT, name, 100)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog"), names))}
    header["comm"] = b"<b>{{data}}"
    trace = TraceFile([thread], header=header).write(Path("trace"))
    for form in ("html", "flamegraph"):
        page = ftpatch("report", "--format", form, trace).out
        assert evil not in page and "<b>" not in page and page.count("</script>") == 2
        assert "http" not in page.replace("http-equiv", "")
        assert data_of(page)["names"] == list(names[:4])
        assert "<title>&lt;b&gt;{{data}} 100</title>" in page
