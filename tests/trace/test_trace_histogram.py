# SPDX-License-Identifier: MIT
"""Histograms, against durations that a naive reading counts one by one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.test_golden import _same
from tests.support.command import ftpatch
from tests.support.probe_traces import BIAS, RETURNED, ProbeFile, Told, ip_of
from tests.support.sampling import scaled
from tests.support.trace_naive import read
from tests.support.trace_writer import ENTRY, EXIT, FUNCTIONS, Thread, TraceFile, program
from tests.trace.test_trace_reading import files

LINE = re.compile(r" *(\S+ \S+) - (\S+ \S+) +(\d+)  \|(@*) *\|")
UNIT = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in the output are names without a folder."""
    monkeypatch.chdir(tmp_path)


def _ns(text: str) -> int:
    """The power of two that a rounded bound stands for, or 0."""
    number, unit = text.split()
    about = float(number) * UNIT[unit]
    return 0 if about == 0 else 1 << (round(about * 1.1).bit_length() - 1)


def _read(out: str) -> dict[str, dict[tuple[int, int], int]]:
    """By function and bucket: calls; bars must be as long as their share says."""
    told: dict[str, dict[tuple[int, int], int]] = {}
    bars: list[tuple[int, int]] = []
    for line in out.splitlines():
        if line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if found is None:
            mine = told[line] = {}
            bars = []
            continue
        assert len(line) <= 80
        mine[_ns(found[1]), _ns(found[2])] = int(found[3])
        bars.append((int(found[3]), len(found[4])))
        most = max(hits for hits, _ in bars)
        longest = max(length for _, length in bars)
        if most == max(mine.values()) and longest == 42:
            assert all(abs(length - 42 * hits / most) < 1 for hits, length in bars)
    return told


def _expected(file: TraceFile, scale: int) -> dict[str, Counter[int]]:
    out: dict[str, Counter[int]] = {}
    for thread in file.threads:
        for row in read(thread.events):
            if row.event == "exit" and row.duration is not None:
                name = FUNCTIONS[(row.func - 5) // 0x20]
                out.setdefault(name, Counter())[row.duration * scale] += 1
    return out


@settings(max_examples=scaled(60, 15), deadline=None)
@given(files(), st.sampled_from([1, 700, 10**6, 3 * 10**8]))
def test_buckets_hold_what_a_naive_reading_counts(file: TraceFile, scale: int) -> None:
    file.header |= {"path": bytes(program(Path("prog"))), "hz": 10**9 // scale}
    result = ftpatch("report", file.write(Path("trace")), "--format", "histogram")
    assert result.code == 0, result.err
    told, expected = _read(result.out), _expected(file, 1)
    rate = 10**9 / (10**9 // scale)
    assert told.keys() == expected.keys()
    for name, buckets in told.items():
        assert sum(buckets.values()) == expected[name].total()
        for (low, high), hits in buckets.items():
            inside = [n for ticks, n in expected[name].items() if low <= int(ticks * rate) < high]
            assert sum(inside) == hits, (name, low, high)
        lows = [low for low, _ in buckets]
        assert lows == sorted(lows) and [high for _, high in buckets][:-1] == lows[1:]


def _trace(**header: int | bytes) -> Path:
    thread, time = Thread(7).add(ENTRY, "main", 0), 10
    for power in range(0, 32, 3):
        for spent in ((1 << power) - 1, 1 << power, 1 << power, (1 << power) + 1):
            thread.add(ENTRY, "walk", time).add(EXIT, "walk", time + spent)
            time += spent + 10
    for _ in range(300):
        thread.add(ENTRY, "hash", time).add(EXIT, "hash", time + 900)
        time += 1000
    thread.add(ENTRY, "fail", time)
    header["path"] = bytes(program(Path("prog")))
    return TraceFile([thread], header=header).write(Path("prog.trace"))


def test_text() -> None:
    trace = _trace()
    narrow = ftpatch("report", trace, "--format", "histogram", "-f", "walk", "--time", "1-")
    _same("trace-histogram", ftpatch("report", trace, "--format", "histogram"), narrow)
    ticks = ftpatch("report", _trace(hz=0), "--format", "histogram", "-f", "hash").out
    assert re.search(r"^ +512 - 1024 +300  \|@{42}\|$", ticks, re.MULTILINE), ticks


def test_calls_that_r_probes_saw() -> None:
    probe = Told("r:walked walk", ip_of("walk"))
    thread, time = Thread(40), 10_000
    for spent in (100, 120, 1000):
        time += 2000
        thread.add(RETURNED, 0, time, BIAS, spent)
    header: dict[str, int | bytes] = {"path": bytes(program(Path("prog")))}
    trace = ProbeFile([probe], [thread], header=header).write(Path("probes.trace"))
    told = _read(ftpatch("report", trace, "--format", "histogram").out)
    assert {k: v for k, v in told["walk"].items() if v} == {(64, 128): 2, (512, 1024): 1}


@pytest.mark.parametrize(
    ("tracer", "reason"),
    [(1, "does not record returns, and histogram needs them"), (3, "a profile cannot be")],
)
def test_what_has_no_durations_is_refused_in_one_line(tracer: int, reason: str) -> None:
    result = ftpatch("report", _trace(tracer=tracer), "--format", "histogram")
    assert (result.code, result.out) == (2, "") and result.err.count("\n") == 1
    assert reason in result.err
