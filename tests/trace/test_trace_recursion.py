# SPDX-License-Identifier: MIT
"""Functions that call themselves: total time is that of their outermost calls, in every view."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ftpatch
from ftpatch.trace import batches as batching
from tests.support.command import ftpatch as command
from tests.support.pages import data_of
from tests.support.sampling import scaled
from tests.support.trace_writer import ENTRY, EXIT, Thread, TraceFile, program

NAMES = ("main", "parse", "walk")
UNITS = {"ns": 1, "us": 1000, "ms": 10**6}
Totals = dict[str, int]
pytestmark = pytest.mark.skipif(shutil.which("uftrace") is None, reason="needs uftrace")


@st.composite
def recursions(draw: st.DrawFn) -> TraceFile:
    """Threads that go down and up through few functions, whole, in less than a millisecond."""
    threads = []
    for index in range(draw(st.integers(1, 2))):
        thread, stack, time = Thread(100 + index, per=draw(st.integers(1, 30))), list[str](), 0
        for step in draw(st.lists(st.sampled_from([*NAMES, ""]), min_size=1, max_size=40)):
            time += draw(st.integers(1, 900))
            if step:
                stack.append(step)
                thread.add(ENTRY, step, time)
            elif stack:
                thread.add(EXIT, stack.pop(), time)
        while stack:
            time += draw(st.integers(1, 900))
            thread.add(EXIT, stack.pop(), time)
        threads.append(thread)
    return TraceFile(threads)


def _by_uftrace(path: Path) -> tuple[Totals, Totals]:
    """Total time and average of each function, by uftrace's own report of the same calls."""
    folder = path.with_name("folder")
    shutil.rmtree(folder, ignore_errors=True)
    assert not command("report", "--format", "uftrace", "-o", folder, path).code
    found: list[Totals] = []
    for fields in ("total", "total-avg"):
        words = ["uftrace", "report", "--no-pager", "--color=no", "-d", str(folder), "-f", fields]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        rows = re.findall(r"^ *([\d.]+) (ns|us|ms) +(\w+)$", done.stdout, re.MULTILINE)
        found.append({name: round(float(number) * UNITS[unit]) for number, unit, name in rows})
    return found[0], found[1]


def _by_stacks(path: Path) -> Totals:
    """As perf adds up what is below a function: every stack counts once for each that is in it."""
    found: Counter[str] = Counter()
    for line in command("report", "--format", "folded", path).out.splitlines():
        stack, _, own = line.rpartition(" ")
        found.update(dict.fromkeys(stack.split(";"), int(own)))
    return dict(found)


def _by_page(path: Path) -> Totals:
    data = data_of(command("report", "--format", "html", path).out)
    table = data["table"]
    names = (data["names"][number] for number in table["function"])
    return dict(zip(names, table["total"], strict=True))


def _by_graph(path: Path, names: Totals) -> Totals:
    found = {}
    for name in names:
        first = command("report", "--graph", name, path).out.splitlines()[5]
        number, unit, _, told = first.split()
        assert told == name
        found[name] = round(float(number) * UNITS[unit])
    return found


@pytest.mark.scaled
@settings(max_examples=scaled(60, 8), deadline=None)
@given(recursions(), st.sampled_from([64, 1 << 18]))
def test_every_view_says_what_uftrace_says(tmp_path: Path, file: TraceFile, limit: int) -> None:
    file.header["path"] = bytes(program(tmp_path / "prog", NAMES))
    path = file.write(tmp_path / "trace")
    if not any(thread.events for thread in file.threads):
        return
    expected, averages = _by_uftrace(path)
    assert _by_stacks(path) == expected
    with mock.patch.object(batching, "BATCH_WORDS", limit):
        profile = ftpatch.Trace(path).profile()
        assert dict(zip(profile["function"], profile["total"], strict=True)) == expected
        lines = command("report", "--format", "profile", path).out.splitlines()
        said = lines[0].startswith("# Time counts outermost calls only")
        told = {line.split()[-1]: line.split() for line in lines[2 + said :]}
        nested = [
            name for name, row in told.items() if averages[name] * int(row[0]) > expected[name]
        ]
        assert said == bool(nested)
        assert {name: round(float(row[1]) * 1000) for name, row in told.items()} == expected
        assert {name: round(float(row[3]) * 1000) for name, row in told.items()} == averages
        assert _by_page(path) == expected
        same = command("report", "--diff", path, path, "--json").json
        assert {row["function"]: row["after"]["total"] for row in same} == expected
        assert _by_graph(path, expected) == expected
