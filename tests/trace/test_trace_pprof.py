# SPDX-License-Identifier: MIT
"""pprof's format, read back by Go's pprof."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.support.command import ftpatch
from tests.support.probe_traces import ProbeFile, Told
from tests.support.sampling import scaled
from tests.support.trace_naive import read, sums
from tests.support.trace_writer import BASE, Thread, TraceFile, program
from tests.trace.test_trace_reading import files

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="golang-go is not installed")

Stacks = dict[tuple[str, ...], tuple[int, int]]
SAMPLE = re.compile(r"^ +(\d+) +(\d+): ([\d ]+)$")
LOCATION = re.compile(r"^ +(\d+): (0x[0-9a-f]+) M=1 (.+) (.*):(\d+) s=\d+(?:\(\S+\))?$")


def _pprof(*words: str | Path) -> str:
    done = subprocess.run(
        ["go", "tool", "pprof", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _report(path: Path, out: Path, *words: str) -> None:
    result = ftpatch("report", "--format", "pprof", *words, "-o", out, "--force", path)
    assert result.code == 0 and not result.err, result


def _stacks(out: Path) -> Stacks:
    """Calls and time by names from the outermost inwards."""
    lines = _pprof("-raw", out).splitlines()
    names = {found[1]: found[3] for line in lines if (found := LOCATION.match(line))}
    samples: Stacks = {}
    for found in filter(None, map(SAMPLE.match, lines)):
        stack = tuple(names[number] for number in reversed(found[3].split()))
        assert stack not in samples
        samples[stack] = int(found[1]), int(found[2])
    return samples


def _expected(file: TraceFile) -> Stacks:
    calls: Counter[tuple[int, ...]] = Counter()
    own: Counter[tuple[int, ...]] = Counter()
    for thread in file.threads:
        stack: list[int] = []
        for row in read(thread.events):
            del stack[row.depth :]
            if row.event == "entry":
                stack.append(row.func)
                calls[tuple(stack)] += 1
        own.update(sums(thread.events)[1])
    return {tuple(hex(BASE + f - 1) for f in way): (calls[way], own[way]) for way in calls}


@settings(max_examples=scaled(60, 10))
@given(files())
def test_stacks_come_back(tmp_path: Path, file: TraceFile) -> None:
    path, out = file.write(tmp_path / "trace"), tmp_path / "out"
    _report(path, out)
    expected = _expected(file)
    if expected:  # pprof refuses to print a profile without samples
        assert _stacks(out) == expected


def test_what_pprof_prints(tmp_path: Path) -> None:
    thread = Thread(1).add(1, "main", 0).add(1, "parse", 1_000).add(2, "parse", 4_000)
    thread.add(1, "parse", 5_000).add(2, "parse", 9_000).add(2, "main", 10_000)
    prog = program(tmp_path / "prog")
    file = TraceFile([thread], header={"path": bytes(prog), "lost0": 3})
    path, out = file.write(tmp_path / "trace"), tmp_path / "out"
    result = ftpatch("report", "--format", "pprof", path, "-o", out)
    assert result.code == 0 and "3 events lost" in result.err
    rows = [line.split() for line in _pprof("-top", "-cum", "-unit=ns", out).splitlines()]
    assert ["File:", "prog"] in rows and ["Type:", "time"] in rows
    assert rows[-2:] == [
        ["3000ns", "30.00%", "30.00%", "10000ns", "100%", "main"],
        ["7000ns", "70.00%", "100%", "7000ns", "70.00%", "parse"],
    ]
    rows = [line.split() for line in _pprof("-top", "-sample_index=calls", out).splitlines()]
    assert rows[-2:] == [
        ["2", "66.67%", "66.67%", "2", "66.67%", "parse"],
        ["1", "33.33%", "100%", "3", "100%", "main"],
    ]
    assert "3 events lost" in _pprof("-comments", out)


def test_equal_traces_make_equal_files(tmp_path: Path) -> None:
    path = TraceFile([Thread(1).add(1, "main", 0).add(2, "main", 5)]).write(tmp_path / "trace")
    for name in ("one", "two"):
        _report(path, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_names_and_clocks_that_are_odd(tmp_path: Path) -> None:
    names = ("a b", "\x1b[31m", "Überlauf", "c;d", "_ZN1a1bIiEEvT_", "x" * 5000, "e", "f")
    prog = program(tmp_path / "prog", names)
    thread = Thread(1).add(1, "main", 0).add(1, "parse", 1).add(1, "read_line", 2)
    thread.add(1, "walk", 3).add(1, "alloc", 4).add(1, "hash", 5).add(2, "main", 9)
    path = TraceFile([thread], header={"path": bytes(prog), "hz": 0}).write(tmp_path / "trace")
    out = tmp_path / "out"
    assert ftpatch("report", "--format", "pprof", path, "-o", out).code == 0
    raw = _pprof("-raw", out)
    assert "time/ticks" in raw and "\x1b" not in raw
    deepest = max(_stacks(out), key=len)
    assert len(deepest) == 6 and deepest[0] == "a b" and deepest[2:4] == ("Überlauf", "c;d")
    assert deepest[4] == "void a::b<int>(int)" and deepest[5] == "x" * 5000


def test_probes_that_see_returns(tmp_path: Path) -> None:
    only = ProbeFile([Told("p:one main", BASE)], [Thread(1).add(1, 0, 5)]).write(tmp_path / "p")
    done = ftpatch("report", "--format", "pprof", only)
    assert done.code == 2 and "there are no r probes" in done.err and done.err.count("\n") == 1
