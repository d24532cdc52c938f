# SPDX-License-Identifier: MIT
"""Calls as columns: those that filters select are the command line's, arguments what programs print
of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ftpatch
from ftpatch.api.call_columns import Columns
from ftpatch.trace import batches as batching
from tests.support.command import ftpatch as command
from tests.support.sampling import scaled
from tests.support.trace_writer import (
    ENTRY,
    ENTRY_ARGS,
    EXIT,
    EXIT_VALUE,
    FUNCTION,
    Thread,
    TraceFile,
    program,
    site,
)
from tests.support.tracer_programs import SOURCES, traced
from tests.support.typed_programs import Build, recorded
from tests.trace.test_trace_call_filters import Asked, asked, traces

GCC = Build("x86_64", "gcc", "-O0")


def _write(file: TraceFile, folder: Path) -> Path:
    file.header["path"] = bytes(program(folder / "prog"))
    return file.write(folder / "trace")


def _options(want: Asked) -> dict[str, Any]:
    """The command line's words, as keywords."""
    words, out = iter(want.words), dict[str, Any]()
    names = {
        "-F": "only",
        "--trigger": "trigger",
        "-D": "max_depth",
        "--time-filter": "time_filter",
    }
    for option in words:
        name, value = names.get(option, "max_calls"), next(words)
        if name in ("only", "trigger"):
            out.setdefault(name, []).append(value)
        else:
            out[name] = value if name == "time_filter" else int(value)
    return out


def _told(columns: Columns, *names: str) -> list[tuple[Any, ...]]:
    """The rows of some columns."""
    return sorted(zip(*(columns[name].tolist() for name in names), strict=True))


@settings(max_examples=scaled(200, 20), deadline=None)
@given(traces(), asked(), st.booleans())
def test_filters_select_what_those_of_the_command_line_do(
    tmp_path: Path, file: TraceFile, want: Asked, many: bool
) -> None:
    occurring = {func for thread in file.threads for kind, func, *_ in thread.events if kind != 6}
    if not want.only | want.on | want.off <= occurring:
        return
    path = _write(file, tmp_path)
    with mock.patch.object(batching, "BATCH_WORDS", 64 if many else 1 << 18):
        rows = command("report", "--json", path, *want.words).json
        columns = ftpatch.Trace(path, **_options(want)).columns()
    entries = [
        (row["tid"], row["time"], row["depth"], row["function"])
        for row in rows
        if row["event"] == "entry"
    ]
    assert _told(columns, "tid", "time", "depth", "function") == sorted(entries)


@settings(max_examples=scaled(100, 10), deadline=None)
@given(traces(damaged=False), asked())
def test_calls_take_as_long_as_the_command_line_says(
    tmp_path: Path, file: TraceFile, want: Asked
) -> None:
    occurring = {func for thread in file.threads for _, func, *_ in thread.events}
    if not want.only | want.on | want.off <= occurring:
        return
    path = _write(file, tmp_path)
    with mock.patch.object(batching, "BATCH_WORDS", 64):
        rows = command("report", "--json", path, *want.words).json
        columns = ftpatch.Trace(path, **_options(want)).columns()
    ends = [
        (row["tid"], row["time"] - row["duration"], row["function"], row["duration"])
        for row in rows
        if row["event"] == "exit"
    ]
    assert _told(columns, "tid", "time", "function", "duration") == sorted(ends)


def _one(folder: Path) -> Path:
    thread, other = Thread(7), Thread(8).add(ENTRY, "hash", 500).add(EXIT, "hash", 600)
    thread.add(ENTRY, "main", 0).add(ENTRY, "parse", 100).add(EXIT, "parse", 150)
    thread.add(ENTRY, "walk", 400).add(ENTRY, "parse", 450).add(EXIT, "parse", 480)
    return _write(TraceFile([thread.add(EXIT, "walk", 700), other]), folder)


def test_time_and_thread(tmp_path: Path) -> None:
    """A call belongs to the time in which it begins."""
    path = _one(tmp_path)
    columns = ftpatch.Trace(path, time="0.0000001-0.00000045").columns()
    assert columns["function"].tolist() == ["parse", "walk", "parse"]
    assert columns["duration"].tolist() == [50, 300, 30]
    assert ftpatch.Trace(path, tid=8).columns()["function"].tolist() == ["hash"]
    assert len(ftpatch.Trace(path, tid=[7, 8]).columns()["tid"]) == 5


def test_a_profile_of_some_calls(tmp_path: Path) -> None:
    path = _one(tmp_path)
    profile = ftpatch.Trace(path, only="walk", max_depth=1).profile()
    (row,) = command("report", path, "-F", "walk", "-D", "1", "--format", "folded").out.splitlines()
    assert profile["function"].tolist() == ["walk"]
    assert profile["self"].tolist() == [300] and row == "walk 300"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"time_filter": "10"},
            "^time_filter '10' is not a time with a unit; .*as in time_filter 10us$",
        ),
        ({"trigger": "parse"}, "^trigger 'parse' is not GLOB@on or GLOB@off; as in trigger '"),
        ({"time": "2-1"}, "^time '2-1' ends before it begins"),
        ({"time": "soon"}, "^time 'soon' is not FROM-TO in seconds; as in time 0.5-2$"),
        ({"max_depth": 0}, "^max_depth 0 is less than 1$"),
        ({"max_calls": -1}, "^max_calls -1 is less than 1$"),
        ({"tid": 9}, "no thread 9"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ftpatch.UsageError, match=reason):
        ftpatch.Trace(_one(tmp_path), **options)


@pytest.mark.parametrize("option", ["filter", "only"])
def test_a_filter_that_matches_nothing(option: str, tmp_path: Path) -> None:
    trace = ftpatch.Trace(_one(tmp_path), **{option: "prase"})  # type: ignore[arg-type]
    for read in (trace.columns, trace.profile):
        with pytest.raises(ftpatch.UsageError, match="matches no function") as told:
            read()
        assert told.value.hint == "did you mean parse?"


def test_what_has_no_calls_that_end(tmp_path: Path) -> None:
    points = TraceFile([Thread(1).add(ENTRY, "main", 1)], header={"tracer": FUNCTION})
    path = _write(points, tmp_path)
    with pytest.raises(ftpatch.UsageError, match="does not record returns, and only needs them"):
        ftpatch.Trace(path, only="main")
    sums = TraceFile([], profiles=[[(site("main"), 1, 10, 10)]])
    with pytest.raises(ftpatch.UsageError, match="max_calls selects single calls"):
        ftpatch.Trace(_write(sums, tmp_path), max_calls=3)


def test_words_of_arguments_find_their_calls(tmp_path: Path) -> None:
    """Calls that end many batches later; one that does not return, one without arguments."""
    thread = Thread(7, per=3)
    thread.add(ENTRY_ARGS, "main", 1, 1, 2, 3, 4, 5, 6).add(ENTRY_ARGS, "walk", 2, *[1 << 63] * 6)
    for number in range(100):
        thread.add(ENTRY_ARGS, "parse", 10 * number + 10, number, 0, 0, 0, 0, 0)
        thread.add(EXIT_VALUE, "parse", 10 * number + 15, 2 * number)
    thread.add(EXIT_VALUE, "walk", 2000, 77).add(ENTRY, "hash", 2001).add(EXIT, "hash", 2002)
    path = _write(TraceFile([thread], chunk_size=296), tmp_path)
    for words in (64, 1 << 18):
        with mock.patch.object(batching, "BATCH_WORDS", words):
            trace = ftpatch.Trace(path)
            columns, parse = trace.columns(), trace.arguments("parse")
        called = columns["function"]
        assert columns["arg2"][called == "main"].tolist() == [2]
        assert columns["arg6"][called == "walk"].tolist() == [1 << 63]
        assert columns["arg1"][called == "parse"].tolist() == [*range(100)]
        assert columns["value"][called == "parse"].tolist() == [*range(0, 200, 2)]
        assert columns["value"][called != "parse"].tolist() == [None, 77, None]
        assert columns["arg1"][called == "hash"].tolist() == [None]
        assert parse["arg1"].dtype == np.int64 and parse["arg1"].tolist() == [*range(100)]
        assert parse["value"].dtype == np.uint64 and set(parse["depth"]) == {2}


def test_a_recording_without_arguments(tmp_path: Path) -> None:
    trace = ftpatch.Trace(_one(tmp_path))
    assert not {"arg1", "value"} & set(trace.columns())
    with pytest.raises(ftpatch.UsageError, match="have no arguments; trace with --args"):
        trace.arguments("parse")
    with pytest.raises(ftpatch.UsageError, match="'prase' matches no function"):
        trace.arguments("prase")


def test_arguments_are_what_the_program_prints(tmp_path: Path) -> None:
    file, printed = recorded(GCC.program(SOURCES / "arguments.c", tmp_path), "x86_64")
    trace = ftpatch.Trace(file)
    for function in ("work", "twice", "small"):
        columns = trace.arguments(function)
        said = [values for name, values in printed if name == function]
        assert said and set(columns["function"]) == {function}
        for name in said[0]:
            assert columns[name].tolist() == [values[name] for values in said], name
    work = trace.arguments("work")
    assert work["flag"].dtype == np.bool_ and work["x"].dtype == np.int64
    assert (work["value"].astype(np.int32) == work["x"]).all()
    assert list(work)[7:] == ["name", "flag", "c", "mode", "x", "value"]


NAMES = r"""
#include <stdio.h>
__attribute__((noinline)) int meet(int time, const char *value, int depth, int)
{
	printf("%d %p %d\n", time, (void *)value, depth);
	return time;
}
__attribute__((noinline)) int greet(int first) { return printf("%d\n", first); }
int main(void) { return meet(3, "x", 4, 5) + meet(-3, "y", 5, 6) + greet(7) - 2; }
"""


def test_parameters_with_names_of_columns(tmp_path: Path) -> None:
    source, prog = tmp_path / "names.cpp", tmp_path / "names"
    source.write_text(NAMES)
    flags = ["-g", "-O1", "-fpatchable-function-entry=5"]
    subprocess.run(["g++", *flags, source, "-o", prog], check=True)
    file = tmp_path / "trace"
    target = traced(prog, "function_graph", "--args")
    done = subprocess.run([target], env={"FTPATCH_TRACE": str(file)}, stdout=subprocess.PIPE)
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    meet = ftpatch.Trace(file).arguments("meet")
    assert meet["time_value"].tolist() == [int(lines[0][0]), int(lines[1][0])] == [3, -3]
    assert meet["value_value"].tolist() == [lines[0][1], lines[1][1]]
    assert meet["depth_value"].tolist() == [4, 5]
    assert meet["arg4"].tolist() == [5, 6]  # it has no name
    both = ftpatch.Trace(file).arguments("*eet")
    assert both["function"].tolist() == [*["meet(int, char const*, int, int)"] * 2, "greet(int)"]
    assert both["first"].tolist() == [None, None, 7]
