# SPDX-License-Identifier: MIT
"""Threads, signals and forks at once: no call is recorded twice, and none is forgotten.

The program counts its own calls. What the files of all its processes hold, and what they say they
could not record, comes to the same number.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.trace_events import ENTRIES, EXITS, LEFT, Trace, balance, read_trace
from tests.support.tracer_programs import ARCHES, Form, build, run, traced

FILTER = ("-f", "count_*")
FORMS = [Form(), Form(link="static", level="-O0"), Form(level="-O3", site="fentry")]
FOREIGN = [
    Form("i386", "no-pie", "-O3", "fentry"),
    Form("i386"),
    Form("arm64"),
    Form("arm64", "static", "-O0"),
    Form("riscv64"),
    Form("riscv64", "static", "-O0"),
    Form("ppc64le"),
    Form("ppc64le", "static", "-O0"),
    Form("arm"),
    Form("arm", "static", "-O0", more=("-marm",)),
    Form("loongarch64"),
    Form("loongarch64", "static", "-O0"),
    Form("s390x"),
    Form("s390x", "static", "-O0"),
]


def _traces(
    form: Form, mode: str, tmp_path: Path, tracer: str = "function_graph", size: str = "8M"
) -> tuple[int, int, list[Trace]]:
    """Calls by the program's count, jumps or forks of its handlers, and its processes' files."""
    program = traced(build(form, "stress.c", tmp_path), tracer, *FILTER)
    room = tmp_path / "room"
    room.mkdir()
    done = run(program, [mode], cwd=room, arch=form.arch, env={"FTPATCH_TRACE_SIZE": size})
    assert done.status == 0, str(done)
    calls, jumps = map(int, done.out.split())
    return calls, jumps, [read_trace(path) for path in sorted(room.glob("*.trace"))]


def _entries(traces: list[Trace]) -> int:
    return sum(event.type in ENTRIES for trace in traces for event in trace.events)


def _lost(traces: list[Trace]) -> int:
    return sum(sum(trace.lost.values()) for trace in traces)


@pytest.mark.parametrize(
    ("form", "size"),
    [*itertools.product(FORMS, ["8M", "256K"]), *((form, "256K") for form in FOREIGN)],
    ids=str,
)
def test_every_call_is_recorded_or_counted(form: Form, size: str, tmp_path: Path) -> None:
    calls, _, traces = _traces(form, "", tmp_path, size=size)
    assert _entries(traces) + _lost(traces) == calls
    assert len({trace.pid for trace in traces}) == len(traces) > 10
    for trace in traces:
        for thread in trace.threads:
            assert all(event.type != LEFT for event in thread.events)


@pytest.mark.parametrize("form", [Form(), Form(link="static", level="-O0")], ids=str)
def test_frames_nest(form: Form, tmp_path: Path) -> None:
    """In each thread by itself. Those of a thread that had ended when its process forked, or which
    the child came from, may stay open."""
    _, _, traces = _traces(form, "", tmp_path, size="64M")
    assert not any(trace.lost["full"] for trace in traces)
    for trace in traces:
        for thread in trace.threads:
            stack = balance(thread)
            assert not stack or trace.pid == thread.tid


@pytest.mark.parametrize("arch", ARCHES)
def test_threads_are_told_apart(arch: str, tmp_path: Path) -> None:
    """Although they get each other's stacks, and the first that is seen is not the process's."""
    built = build(Form(arch), "stress.c", tmp_path)
    program = traced(built, "function_graph", "-f", "count_thread")
    done = run(program, cwd=tmp_path, arch=arch, env={"FTPATCH_TRACE": str(tmp_path / "trace")})
    assert done.status == 0, str(done)
    trace = read_trace(tmp_path / "trace")
    assert len({thread.tid for thread in trace.threads}) == 160
    assert all(len(thread.events) == 2 for thread in trace.threads)


def test_calls_of_a_child_that_begins_are_counted(tmp_path: Path) -> None:
    """Those of handlers that come while the child makes its file."""
    calls, _, traces = _traces(Form(), "early", tmp_path)
    assert _entries(traces) + _lost(traces) == calls


def test_the_function_tracer_forgets_none(tmp_path: Path) -> None:
    calls, _, traces = _traces(Form(), "", tmp_path, "function")
    assert _entries(traces) + _lost(traces) == calls
    assert not any(event.type in EXITS for trace in traces for event in trace.events)


def test_jumps_out_of_handlers(tmp_path: Path) -> None:
    """A jump out of the tracer itself may be of a call that is recorded and not counted, or counted
    as lost and not made."""
    calls, jumps, traces = _traces(Form(), "jump", tmp_path)
    assert jumps > 5
    assert abs(_entries(traces) + _lost(traces) - calls) <= jumps


def test_forks_of_handlers(tmp_path: Path) -> None:
    """A child that goes on in the middle of the tracer has nothing to write to its parent's file.
    The call that a fork came into may be recorded once, and counted by both."""
    calls, forks, traces = _traces(Form(), "forks", tmp_path, size="64M")
    assert len(traces) == forks + 1 > 10
    assert abs(_entries(traces) + _lost(traces) - calls) <= forks
    for trace in traces:
        for thread in trace.threads:
            balance(thread)
