# SPDX-License-Identifier: MIT
"""A Rust program traced and probed while its threads panic and catch it: it counts its calls
itself (tests/programs/panics.rs)."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.busy import ours_in, taken_out
from tests.support.command import ftpatch
from tests.support.probed_process import hits
from tests.support.sampling import scaled
from tests.support.told import Told
from tests.support.trace_events import calls_in, read_trace

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64"),
    pytest.mark.skipif(shutil.which("rustc") is None, reason="rustc is not installed"),
]
SOURCE = Path(__file__).parent.parent / "programs" / "panics.rs"
THREADS, DEEP = 4, 5
"""Threads of the program, and calls of risk() for one of accept()."""
CALLS = 300


def _built(folder: Path, *flags: str) -> Path:
    path = folder / "prog"
    words = ["rustc", "-C", "opt-level=1", *flags, str(SOURCE), "-o", str(path)]
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1"}  # a stable rustc takes -Z, too
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if "unknown unstable option" in done.stderr or "unknown debugging option" in done.stderr:
        pytest.skip(f"this rustc does not know {flags}")
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("padded"), "-Z", "patchable-function-entry=5")


def _made(calls: int) -> str:
    return f"made {THREADS * DEEP * calls}\n"


@pytest.mark.parametrize("tracer", ["function", "function_graph", "function_profile"])
def test_panics_are_caught_and_calls_counted(padded: Path, tmp_path: Path, tracer: str) -> None:
    trace = tmp_path / "t.trace"
    with Told(padded) as program:
        assert program.asks(10) == _made(10)
        words = ("--tracer", tracer, "-f", "risk", "-f", "accept", "-o", trace)
        said = ftpatch("enable", "--pid", program.pid, *words)
        assert said.code == 0, said.err
        assert program.asks(CALLS) == _made(CALLS)
        taken_out(int(program.pid))
        assert ours_in(int(program.pid)) == []
        assert program.asks(10) == _made(10)
        program.require_clean()
    counted = sorted(calls_in(read_trace(trace)).values())
    assert counted == [THREADS * CALLS, THREADS * DEEP * CALLS]


@pytest.mark.scaled
def test_traced_and_left_while_it_panics(padded: Path, tmp_path: Path) -> None:
    """Every function, again and again."""
    over, said = threading.Event(), set[str]()

    def ask() -> None:
        while not over.is_set():
            said.add(program.asks(CALLS))

    with Told(padded) as program:
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for number in range(scaled(10, 2)):
                words = ("--tracer", "function_graph", "-o", tmp_path / f"{number}.trace")
                told = ftpatch("enable", "--pid", program.pid, *words)
                assert told.code == 0, told.err
                taken_out(int(program.pid))
        finally:
            over.set()
            asking.join()
        assert said == {_made(CALLS)}
        assert ours_in(int(program.pid)) == []
        program.require_clean()


@pytest.mark.parametrize("built", ["plain", "padded"])
def test_probes(built: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path, trace = request.getfixturevalue(built), tmp_path / "t.trace"
    with Told(path) as program:
        assert program.asks(10) == _made(10)
        probes = ("p:risk risk n=$arg1:s64 depth=$arg2:s64", "p:accept accept n=$arg1:s64")
        more = ("p:in libc.so.6:malloc", "r:out libc.so.6:malloc")
        said = ftpatch("probe", "--pid", program.pid, *probes, *more, "--keep", "-o", trace)
        assert said.code == 0, said.err
        assert program.asks(CALLS) == _made(CALLS)
        taken_out(int(program.pid))
        assert ours_in(int(program.pid)) == []
        assert program.asks(10) == _made(10)
        program.require_clean()
        left = ("r:left risk", "r:accepted accept ret=$retval:s64")  # panics leave risk()
        said = ftpatch("probe", "--pid", program.pid, *left, "--keep", "-o", tmp_path / "left")
        assert said.code == 0, said.err
        assert program.asks(CALLS) == _made(CALLS)
        taken_out(int(program.pid))
        assert ours_in(int(program.pid)) == []
        program.require_clean()
    assert hits(tmp_path / "left")[0]["accepted"] == THREADS * CALLS
    counted, rows = hits(trace)
    assert (counted["accept"], counted["risk"]) == (THREADS * CALLS, THREADS * DEEP * CALLS)
    assert counted["in"] == counted["out"] > 0
    each = Counter(row["values"]["n"] for row in rows["accept"])
    assert each == dict.fromkeys(range(CALLS), THREADS)
    depths = Counter(row["values"]["depth"] for row in rows["risk"])
    assert depths == dict.fromkeys(range(DEEP), THREADS * CALLS)
