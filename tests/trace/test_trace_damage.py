# SPDX-License-Identifier: MIT
"""Trace files that are cut off, foreign, or lie: one line and exit 2, or the part that is whole."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command import ROOT, Result, ftpatch, ftpatch_command
from tests.support.samples import sample
from tests.support.sampling import scaled
from tests.support.trace_writer import (
    ENTRY,
    ENTRY_ARGS,
    ENTRY_FROM,
    EXIT,
    EXIT_VALUE,
    FIELDS,
    LEFT,
    TIME,
    Thread,
    TraceFile,
)

FORMATS = (
    "function_graph",
    "function",
    "profile",
    "histogram",
    "folded",
    "flamegraph",
    "html",
    "chrome",
    "json",
)


def _threads() -> list[Thread]:
    """All types of events."""
    first = Thread(100, per=5).add(ENTRY, "main", 10).add(ENTRY_ARGS, "parse", 20, 1, 2, 3, 4, 5, 6)
    first.add(ENTRY, "walk", 30).add(ENTRY, "alloc", 35).add(LEFT, 2, 40).add(TIME, 0, 40, 1000)
    first.add(EXIT_VALUE, "parse", 50, 7).add(EXIT, "walk", 60).add(EXIT, "main", 70)
    second = Thread(101).add(ENTRY_FROM, "hash", 5, 0x401005).add(EXIT, "fail", 50)
    return [first, second]


def _is_told(result: Result) -> None:
    """Done, with what is whole; or one line, without what only we would understand."""
    assert result.code in (0, 2), result
    assert "internal error" not in result.err and "Traceback" not in result.err, result
    if result.code == 2:
        assert re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result
    assert "Warning" not in result.err


def test_cut_at_every_offset(tmp_path: Path) -> None:
    raw = TraceFile(_threads(), chunk_size=128, begin=1280).build()
    path, seen = tmp_path / "trace", -1
    for length in (*range(0, 1280, 97), *range(1279, len(raw) + 1)):
        path.write_bytes(raw[:length])
        result = ftpatch("report", "--json", path)
        _is_told(result)
        assert (result.code == 2) == (length < 1280)
        lines = len(result.out.splitlines())
        if length < len(raw) and result.code == 0:
            assert f"the file is truncated: {length} of {len(raw)} bytes" in result.err
        # The threads' chunks alternate, so more of the file is not always more of a stack.
        assert lines >= min(seen, 2)
        seen = lines
    assert seen == 11


@pytest.mark.parametrize("field", [name for name in FIELDS if name not in ("comm", "path")])
def test_every_number_of_the_header_lies(tmp_path: Path, field: str) -> None:
    path = tmp_path / "trace"
    width = 8 if FIELDS.index("size") <= FIELDS.index(field) < FIELDS.index("pid") else 4
    width = 8 if field.startswith("lost") or field in ("overwritten", "accounts") else width
    values: list[int | bytes] = [0, 1, 7, 8, 32, 33, 40, 1280, 4096, 1 << 20]
    values += [(1 << 8 * width) - 1, 1 << (8 * width - 1)]
    if field in ("magic", "image_id"):
        values = [b"", b"FTPTRACF", b"\xff" * 8]
    for value in values:
        TraceFile(_threads(), header={field: value}).write(path)
        for form in ("function_graph", "profile"):
            _is_told(ftpatch("report", "--format", form, path))


@pytest.mark.parametrize("place", [1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 64])
def test_accounts_behind_the_end(tmp_path: Path, place: int) -> None:
    path = tmp_path / "trace"
    TraceFile(_threads(), header={"accounts": place, "accounted": 2, "lost0": 3}).write(path)
    result = ftpatch("report", path)
    _is_told(result)
    assert result.code == 0 and "3 events lost" in result.out, result


@settings(max_examples=scaled(30, 7))
@given(st.lists(st.tuples(st.integers(0, 511), st.integers(1, 255)), min_size=1, max_size=12))
def test_random_damage(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    raw = bytearray(TraceFile(_threads(), chunk_size=128, begin=1280).build())
    for place, change in changes:
        at = 1280 + place if 1280 + place < len(raw) else place % 256
        raw[at] ^= change
    path = tmp_path / "trace"
    path.write_bytes(raw)
    for form in FORMATS:
        _is_told(ftpatch("report", "--format", form, path))
    for form in ("perfetto", "pprof", "trace-dat", "uftrace"):
        shutil.rmtree(tmp_path / "uftrace", ignore_errors=True)
        _is_told(ftpatch("report", "--format", form, path, "-o", tmp_path / form, "--force"))
    _is_told(ftpatch("report", "--time", "0.1-", "-D", "1", path))


@settings(max_examples=scaled(40, 10))
@given(st.binary(max_size=600), st.sampled_from([40, 48, 64, 128, 4096]))
def test_chunks_of_anything(tmp_path: Path, words: bytes, size: int) -> None:
    head = bytearray(TraceFile([Thread(1).add(ENTRY, 1, 1)], chunk_size=size, begin=1280).build())
    path = tmp_path / "trace"
    path.write_bytes(head[: 1280 + 32] + words)
    for form in FORMATS:
        _is_told(ftpatch("report", "--format", form, path))


def test_what_is_no_trace(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    for path in (empty, tmp_path, tmp_path / "missing", sample("pad").path, Path("/dev/null")):
        result = ftpatch("report", path)
        assert result.code == 2
        _is_told(result)


def test_chunks_that_are_none_are_counted(tmp_path: Path) -> None:
    raw = bytearray(TraceFile(_threads(), chunk_size=128).build())
    raw[4096] ^= 1
    path = tmp_path / "trace"
    path.write_bytes(raw)
    result = ftpatch("report", "--json", path)
    assert result.code == 0 and result.err == "ftpatch: 1 corrupt chunk skipped\n"


def test_a_clock_without_a_rate_tells_ticks(tmp_path: Path) -> None:
    path = TraceFile(_threads(), header={"hz": 0}).write(tmp_path / "trace")
    out = ftpatch("report", path).out
    assert "# the clock's rate is unknown: times are ticks\n" in out
    assert " 100)   1020 ticks  |  } /* 0x401004 */\n" in out


def test_times_that_go_backwards(tmp_path: Path) -> None:
    thread = Thread(1).add(ENTRY, "main", 50).add(TIME, 0, 0, 20).add(EXIT, "main", 80)
    path = TraceFile([thread]).write(tmp_path / "trace")
    rows = ftpatch("report", "--json", path).json
    assert [row["event"] for row in rows] == ["entry", "exit"]
    assert all(row.get("duration", 0) >= 0 for row in rows)


def test_a_deep_stack_and_a_huge_claim_stay_small(tmp_path: Path) -> None:
    """A program that only ever calls, and frames left that never were."""
    thread = Thread(1)
    for number in range(200_000):
        thread.add(ENTRY, 5 + 32 * (number % 3), number)
    for number in range(200):
        thread.add(LEFT, (1 << 28) - 1, 200_000 + number)
    path = TraceFile([thread], chunk_size=1 << 16).write(tmp_path / "trace")
    # Of a process that had no other child than this one.
    code = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    for form in ("profile", "folded"):
        words = ftpatch_command("report", "--format", form, str(path))
        peak = subprocess.check_output([sys.executable, "-c", code, *words], text=True, cwd=ROOT)
        assert int(peak) < 700_000
