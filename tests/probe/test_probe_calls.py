# SPDX-License-Identifier: MIT
"""Calls that r probes saw, against those that a tracer would have recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command import ftpatch
from tests.support.probe_traces import BIAS, RETURNED, ProbeFile, Told, ip_of
from tests.support.sampling import scaled
from tests.support.trace_writer import FUNCTIONS, Call, Thread, TraceFile, program, site

FORMS = ["folded", "function_graph", "flamegraph", "html"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


@st.composite
def _trees(draw: st.DrawFn, depth: int = 3) -> list[Any]:
    """(function, calls) of calls."""
    if not depth:
        return []
    call = st.tuples(st.integers(0, len(FUNCTIONS) - 1), _trees(depth - 1))
    return draw(st.lists(call, max_size=3))


def _timed(tree: list[Any], clock: list[int], step: int) -> list[Call]:
    out = []
    for function, inner in tree:
        clock[0] += step
        begin = clock[0]
        calls = _timed(inner, clock, step)
        clock[0] += step
        out.append(Call(function, begin, clock[0], calls))
    return out


def _returns(call: Call) -> list[tuple[int, ...]]:
    inner = [event for one in call.calls for event in _returns(one)]
    return [*inner, (RETURNED, call.func, call.end, BIAS, call.end - call.begin)]


@settings(max_examples=scaled(60, 15), deadline=None)
@given(st.lists(_trees(), min_size=1, max_size=2), st.sampled_from(FORMS))
def test_calls_are_those_of_a_tracer(trees: list[list[Any]], form: str) -> None:
    """What r probes on all functions saw is what function_graph would have recorded."""
    probes = [Told(f"r:{name} {name}", ip_of(name)) for name in FUNCTIONS]
    traced, probed = [], []
    for tid, tree in enumerate(trees, 40):
        calls = _timed(tree, [1000], 100)
        entries = [e for call in calls for e in call.events()]
        entries = [(kind, site(FUNCTIONS[func]), at) for kind, func, at in entries]
        traced.append(Thread(tid, entries))
        probed.append(Thread(tid, [event for call in calls for event in _returns(call)], per=2))
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    TraceFile(traced, header=header).write(Path("graph"))
    ProbeFile(probes, probed, header).write(Path("probes"))
    one, other = (ftpatch("report", "--format", form, name) for name in ("graph", "probes"))
    assert one.code == other.code == 0, other.err
    assert one.out == other.out


@settings(max_examples=scaled(40, 10), deadline=None)
@given(_trees(), st.integers(0, 2))
def test_clocks_that_hardly_move(tree: list[Any], step: int) -> None:
    """Calls of which many begin and end in one tick all stand in the graph, and all end."""
    calls = _timed(tree, [1000], step)
    events = [event for call in calls for event in _returns(call)]
    probes = [Told(f"r:{name} {name}", ip_of(name)) for name in FUNCTIONS]
    path = ProbeFile(probes, [Thread(1, list(events))]).write(Path("t"))
    done = ftpatch("report", "--format", "function_graph", path)
    begun = sum(line.rstrip().endswith(("{", ";")) for line in done.out.splitlines())
    ended = sum("}" in line or line.rstrip().endswith(";") for line in done.out.splitlines())
    assert done.code == 0 and begun == ended == len(events), done.out


def test_calls_that_are_no_tree() -> None:
    """Of coroutines, and with times that cannot be right: something, and no failure."""
    took = {50: 40, 60: 20, 70: 65, 80: 1 << 60, 90: 85}
    events = [(RETURNED, at // 10 % 3, at, BIAS, ticks) for at, ticks in took.items()]
    probes = [Told(f"r:{name} {name}", ip_of(name)) for name in FUNCTIONS[:3]]
    path = ProbeFile(probes, [Thread(1, list(events))]).write(Path("t"))
    for form in ("function_graph", "folded", "profile", "chrome", "json"):
        done = ftpatch("report", "--format", form, path)
        assert done.code == 0, done.err
    assert len(ftpatch("report", path, "--json").json) == len(events) + 3
