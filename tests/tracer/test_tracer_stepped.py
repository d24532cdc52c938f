# SPDX-License-Identifier: MIT
"""A signal at every instruction of the tracer: when a function is entered, when it returns, when a
thread or a child is seen for the first time; and a second one while the first is handled.

A sample takes some of the instructions; `make test-full` takes each of them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.library_programs import Form as LibraryForm
from tests.support.sampling import FULL, scaled
from tests.support.trace_events import ENTRIES, Trace, balance, read_trace
from tests.support.tracer_programs import SOURCES, Form, build, traced
from tests.tracer.test_trace_lib_programs import _library as library_program

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.skipif(
        os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
    ),
]
TIMEOUT = 1800
GRAPH, ARGS = ("function_graph",), ("function_graph", "--args")
PROFILE = ("function_profile",)
TRACERS = {
    "x86_64": (GRAPH, ARGS, ("function",), PROFILE),
    "i386": (GRAPH, ARGS),  # whose assembly has all that the others' has
}


@dataclass(frozen=True)
class Case:
    """Arguments of stepped.c, and of stepper.c ``times`` and ``step``."""

    tracer: tuple[str, ...] = GRAPH
    handler: str = "returns"
    stack: str = "high"
    depth: int = 0
    where: str = "call"
    arch: str = "x86_64"
    times: int = 2
    step: int = 7

    def __str__(self) -> str:
        words = (*self.tracer, self.handler, self.stack, str(self.depth), self.where, self.arch)
        return "-".join(words)


QUICK = [
    Case(),
    Case(ARGS, step=11),
    Case(PROFILE, step=11),
    Case(("function",), step=5),
    Case(ARGS, stack="same", step=23),
    Case(stack="low", depth=2, step=23),
    Case(handler="jumps", step=23),
    Case(ARGS, handler="jumps", stack="same", step=31),
    Case(handler="many", times=1, step=61),
    Case(handler="many", stack="same", times=1, step=61),
    Case(where="thread", step=23),
    Case(handler="jumps", where="thread", step=41),
    Case(where="fork", step=101),
    Case(arch="i386", step=19),
]
EVERY = [
    Case(tracer, handler, stack, depth, where, arch, 1 if handler == "many" else times, 1)
    for arch, tracers in TRACERS.items()
    for tracer, handler, stack, (where, depth, times) in itertools.product(
        tracers,
        ("returns", "jumps", "many"),
        ("same", "low", "high"),
        (("call", 3, 2), ("thread", 0, 2), ("fork", 0, 1)),
    )
    if handler != "many" or where == "call"
]
"""Each instruction; where rounds are short a second time, with a second signal."""


def _stepper(folder: Path) -> Path:
    target = folder / "stepper"
    subprocess.run(["gcc", "-O2", str(SOURCES / "stepper.c"), "-o", str(target)], check=True)
    return target


def _calls(trace: Trace) -> int:
    recorded = sum(event.type in ENTRIES for event in trace.events)
    return recorded + sum(hits for hits, *_ in trace.profile.values()) + sum(trace.lost.values())


def _stepped(folder: Path, program: Path, case: Case, trace: Path) -> tuple[int, int]:
    """Calls and jumps of a program that a signal came to everywhere."""
    words = [case.handler, case.stack, str(case.depth), case.where]
    size = "256K" if case.where == "fork" else "4M" if case.handler == "many" else "64M"
    done = subprocess.run(
        [str(_stepper(folder)), str(case.times), str(case.step), str(program), *words],
        env={**os.environ, "FTPATCH_TRACE": str(trace), "FTPATCH_TRACE_SIZE": size},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if "no breakpoint of the processor" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    calls, jumps, rounds = map(int, done.stderr.split())
    assert rounds > 10, done.stderr
    return calls, jumps


def _whole(case: Case, traces: list[Trace], calls: int, jumps: int) -> None:
    """Every call is recorded or counted, and no return address was lost."""
    assert abs(sum(map(_calls, traces)) - calls) <= jumps
    assert not any(trace.flags & 4 for trace in traces)
    if case.handler == "returns" and case.tracer in (GRAPH, ARGS):
        for thread in traces[0].threads:
            balance(thread, wander=True)


@pytest.mark.parametrize("case", EVERY if FULL else QUICK, ids=str)
def test_a_signal_at_every_instruction(case: Case, tmp_path: Path) -> None:
    target = traced(build(Form(case.arch), "stepped.c", tmp_path), *case.tracer)
    room = tmp_path / "room"
    room.mkdir()
    calls, jumps = _stepped(tmp_path, target, case, room / "trace")
    traces = [read_trace(path, jumps=jumps > 0) for path in sorted(room.iterdir())]
    _whole(case, traces, calls, jumps)
    shutil.rmtree(room)


@pytest.mark.parametrize(
    "case", [Case(ARGS, step=scaled(1, 31)), Case(handler="jumps", step=scaled(1, 41))]
)
def test_in_a_library(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as one, which a program without sites calls."""
    program = library_program("stepped.c", LibraryForm(), tmp_path)
    found = []

    def run(patched: Path, words: list[str], environment: dict[str, str], *_: object) -> int:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("FTPATCH_TRACE_SOCKET")  # each round is to have a file of its own
        trace = tmp_path / "trace"
        calls, jumps = _stepped(tmp_path, patched, case, trace)
        _whole(case, [read_trace(trace, jumps=jumps > 0)], calls, jumps)
        shutil.copy(trace, environment["FTPATCH_TRACE"])
        found.append(calls)
        return 0

    monkeypatch.setattr("ftpatch.tracer.run.execute", run)
    tracer, *options = case.tracer
    result = ftpatch("trace", "--lib", "libprogram*", "--tracer", tracer, *options, program)
    assert found, result
