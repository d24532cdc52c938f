# SPDX-License-Identifier: MIT
"""Callers and callees of one function, against a stack that a naive reading keeps."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.test_golden import _same
from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_writer import ENTRY, EXIT, FUNCTIONS, Thread, TraceFile, program
from tests.trace.test_trace_reading import well_formed

Ways = dict[tuple[str, ...], tuple[int, int]]
LINE = re.compile(r"  ([\d.]+) us +(\d+)  ( *)(\S+)")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


def _calls(events: Sequence[tuple[int, ...]]) -> Iterator[tuple[list[str], int]]:
    """The stack and the nanoseconds of each call; what is open ends with the last event."""
    stack: list[tuple[str, int]] = []
    for kind, func, time in [*events, *[(EXIT, 0, events[-1][2])] * len(events)]:
        if kind == ENTRY:
            stack.append((FUNCTIONS[(func - 5) // 0x20], time))
        elif stack:
            yield [name for name, _ in stack], time - stack[-1][1]
            stack.pop()


def _naive(threads: Sequence[Thread], wanted: str) -> tuple[Ways, Ways]:
    callers: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    callees: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for thread in threads:
        for stack, spent in _calls(thread.events):
            if wanted not in stack:
                continue
            at = stack.index(wanted)
            ways = [(callees, stack[at:])]
            if at == len(stack) - 1:
                ways += [(callers, stack[-1 : -2 - n : -1]) for n in range(len(stack))]
            for sums, way in ways:
                sums[tuple(way)][0] += 1
                sums[tuple(way)][1] += spent
    return tuple({way: tuple(both) for way, both in one.items()} for one in (callers, callees))  # type: ignore[return-value]


def _read(out: str) -> tuple[Ways, Ways]:
    told: tuple[Ways, Ways] = ({}, {})
    which, way, spent = told[0], list[str](), list[float]()
    for line in out.splitlines():
        if line.startswith("# Callees"):
            which = told[1]
        if line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        assert found, line
        level = len(found[3]) // 2
        way[level:], spent[level + 1 :] = [found[4]], []
        assert len(spent) <= level or spent[level] >= float(found[1]) or not level, "largest first"
        spent[level:] = [float(found[1])]
        assert tuple(way) not in which
        which[tuple(way)] = int(found[2]), round(float(found[1]) * 1000)
    return told


@settings(max_examples=scaled(80, 20), deadline=None)
@given(st.lists(well_formed(), min_size=1, max_size=3), st.integers(1, 30), st.integers(0, 3))
def test_ways_are_those_of_a_naive_reading(
    threads: list[list[tuple[int, int]]], per: int, which: int
) -> None:
    made = []
    for tid, events in enumerate(threads, 100):
        made.append(Thread(tid, per=per))
        for time, (kind, func) in enumerate(events):
            made[-1].add(kind, func, time * time)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    path = TraceFile(made, header=header).write(Path("trace"))
    wanted = FUNCTIONS[which]
    result = ftpatch("report", path, "--graph", wanted)
    expected = _naive([thread for thread in made if thread.events], wanted)
    if not expected[0]:
        assert result.code == 2 and f"--graph '{wanted}' matches no function" in result.err
        return
    assert result.code == 0, result.err
    assert _read(result.out) == expected


def _trace() -> Path:
    """main calls walk, which calls itself and hash; parse calls walk, too."""
    thread = Thread(7).add(ENTRY, "main", 0).add(ENTRY, "walk", 100).add(ENTRY, "walk", 200)
    thread.add(ENTRY, "hash", 300).add(EXIT, "hash", 400).add(EXIT, "walk", 500)
    thread.add(ENTRY, "hash", 600).add(EXIT, "hash", 900).add(EXIT, "walk", 1000)
    thread.add(ENTRY, "parse", 1100).add(ENTRY, "walk", 1200).add(EXIT, "walk", 5000)
    thread.add(EXIT, "parse", 6000).add(EXIT, "main", 7000)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    return TraceFile([thread], header=header).write(Path("prog.trace"))


def test_text() -> None:
    trace = _trace()
    _same(
        "trace-graph-of",
        ftpatch("report", trace, "--graph", "walk"),
        ftpatch("report", trace, "--graph", "[hp]a*"),
        ftpatch("report", trace, "--graph", "walc"),
        ftpatch("report", trace, "--graph", "walk", "--json"),
        ftpatch("report", trace, "--graph", "walk", "--format", "folded"),
        ftpatch("report", trace, "--graph", "walk", "--diff", trace),
    )


@pytest.mark.parametrize(
    ("tracer", "reason"),
    [(1, "does not record returns, and graph needs them"), (3, "a profile cannot be reported as")],
)
def test_what_has_no_calls_that_end_is_refused(tracer: int, reason: str) -> None:
    thread = Thread(7).add(ENTRY, "main", 0)
    trace = TraceFile([thread], header={"tracer": tracer}).write(Path("trace"))
    result = ftpatch("report", trace, "--graph", "main")
    assert (result.code, result.out) == (2, "") and reason in result.err


@pytest.mark.skipif(shutil.which("uftrace") is None, reason="needs uftrace")
def test_uftrace_agrees() -> None:
    """uftrace's graph of the same function, where that is not recursive."""
    trace = _trace()
    done = ftpatch("report", trace, "--format", "uftrace", "-o", "folder")
    assert done.code == 0, done.err
    words = ["uftrace", "graph", "--no-pager", "-d", "folder", "parse"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    whole = told.split("FUNCTION CALL GRAPH")[1]
    rows = re.findall(r"([\d.]+) us :[ |+-]*\((\d+)\) (\w+)", whole)
    mine = _read(ftpatch("report", trace, "--graph", "parse").out)[1]
    assert [(name, int(hits), round(float(us) * 1000)) for us, hits, name in rows] == [
        (way[-1], *sums) for way, sums in mine.items()
    ]
