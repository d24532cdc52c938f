# SPDX-License-Identifier: MIT
"""trace.dat files, read back by trace-cmd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command import ftpatch
from tests.support.probe_traces import ProbeFile, Told
from tests.support.sampling import scaled
from tests.support.trace_file_programs import native, trace_twice
from tests.support.trace_naive import read
from tests.support.trace_writer import BASE, ENTRY_FROM, Thread, TraceFile, library, program
from tests.trace.test_trace_reading import files

pytestmark = pytest.mark.skipif(
    shutil.which("trace-cmd") is None, reason="trace-cmd is not installed"
)

Events = dict[int, list[tuple[str, int, int, int, int]]]
RAW = re.compile(
    r"^ *(.*)-(\d+) +\[(\d+)\] +(\d+)\.(\d{9}): funcgraph_(entry|exit): +func=(\S+) depth=(\d+)"
    r"(?: overrun=0 calltime=([0-9a-f]+) rettime=([0-9a-f]+))?$"
)
PRINTED = re.compile(r"^.*-(\d+) +\[\d+\] .*: funcgraph_\w+: (?:[ $@*#!+]*)(.*)$")
KSHARK = """
import ctypes, sys
kshark = ctypes.CDLL("libkshark.so.2")
kshark.kshark_dump_entry.restype = ctypes.c_char_p
context, rows = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)()
assert kshark.kshark_instance(ctypes.byref(context))
stream = kshark.kshark_open(context, sys.argv[1].encode())
for at in range(kshark.kshark_load_entries(context, stream, ctypes.byref(rows))):
    print(kshark.kshark_dump_entry(ctypes.c_void_p(rows[at])).decode())
"""
"""Prints the entries that KernelShark shows of a file."""


def _trace_cmd(path: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["trace-cmd", "report", *words, "-i", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


def _report(path: Path, *words: str) -> Path:
    out = path.with_name("out.dat")
    result = ftpatch("report", "--format", "trace-dat", *words, "-o", out, "--force", path)
    assert result.code == 0, result
    return out


def _events(out: Path) -> Events:
    """By tid: entry or exit, function, time, depth and duration."""
    found: Events = {}
    for line in _trace_cmd(out, "-R", "-t"):
        if row := RAW.match(line):
            time = int(row[4]) * 10**9 + int(row[5])
            begun, ended = (int(row[n] or "0", 16) for n in (9, 10))
            assert row[6] == "entry" or ended == time
            func = int(row[7], 16) - BASE + 1
            told = (row[6], func, time, int(row[8]), ended - begun)
            found.setdefault(int(row[2]), []).append(told)
    return found


def _expected(file: TraceFile) -> Events:
    """What a naive reading has, without ends of what was not open."""
    out: Events = {}
    for thread in file.threads:
        stack: list[int] = []
        for row in read(thread.events):
            spent = 0
            if row.event == "entry":
                stack.append(row.time)
            elif row.depth == len(stack):
                continue
            else:
                spent = row.time - stack.pop()
            kind = "entry" if row.event == "entry" else "exit"
            told = (kind, row.func, row.time, row.depth, spent)
            out.setdefault(thread.tid, []).append(told)
    return out


@settings(max_examples=scaled(60, 10))
@given(files())
def test_events_come_back(tmp_path: Path, file: TraceFile) -> None:
    out = _report(file.write(tmp_path / "trace"))
    expected = _expected(file)
    if expected:  # trace-cmd has an error for a file without events
        assert _events(out) == expected


@settings(max_examples=scaled(20, 4))
@given(
    st.lists(
        st.sampled_from([0, 1, (1 << 27) - 1, 1 << 27, (1 << 27) + 1, 1 << 32, 1 << 43]),
        min_size=1,
        max_size=40,
    )
)
def test_times_that_are_far_apart(tmp_path: Path, steps: list[int]) -> None:
    """Entries of 24 bytes, and those with 8 more, wherever pages end. All are below 2**53 ns, up to
    where doubles, by which ticks become nanoseconds, are exact."""
    time, expected, thread = 1, [], Thread(9)
    for number, step in enumerate(steps * (1 + 500 // len(steps))):  # of several pages
        time += step
        thread.add(7, 0, 0, time).add(1, "main", 0)
        expected.append(("entry", 5, time, number, 0))
    out = _report(TraceFile([thread]).write(tmp_path / "trace"))
    assert [(*row[:4], 0) for row in _events(out)[9]] == [
        (kind, 5, at, depth, 0) for kind, _, at, depth, _ in expected
    ]


def _ours(path: Path) -> list[tuple[str, str]]:
    """Thread and text of our own graph."""
    lines = ftpatch("report", "--format", "function_graph", path).out.splitlines()
    split = [line.partition(") ") for line in lines if not line.startswith("#")]
    return [(tid.strip(), text[2:].strip()) for tid, _, text in split]


def _theirs(out: Path) -> list[tuple[str, str]]:
    lines = _trace_cmd(out, "-O", "fgraph:tailprint=1")
    rows = [row for line in lines if (row := PRINTED.match(line))]
    return [(row[1], re.sub(r" +\|", "    |", row[2]).strip()) for row in rows]


def test_trace_cmd_prints_the_graph_that_we_print(tmp_path: Path) -> None:
    main = Thread(4711).add(1, "main", 100).add(1, "parse", 1_000).add(1, "hash", 2_000)
    main.add(2, "hash", 3_500).add(2, "parse", 50_000).add(1, "walk", 60_000)
    main.add(2, "walk", 960_000).add(2, "main", 7_000_000_000)
    other = Thread(4712).add(1, "alloc", 52_500).add(2, "alloc", 54_500)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog"))}
    path = TraceFile([main, other], header=header).write(tmp_path / "trace")
    ours = [(tid, re.sub(r" +\|", "    |", text)) for tid, text in _ours(path)]
    assert _theirs(_report(path)) == ours and len(ours) == 7
    assert _trace_cmd(_report(path))[0] == "cpus=2"
    assert _report(path).stat().st_size == 3 * 4096


@native
def test_a_traced_program(tmp_path: Path) -> None:
    trace_twice(tmp_path, "trace-dat=out.dat")
    ours = [(tid, re.sub(r" +\|", "    |", text)) for tid, text in _ours(tmp_path / "run.trace")]
    assert _theirs(tmp_path / "out.dat") == ours
    assert _trace_cmd(tmp_path / "out.dat")[1].split("-")[0].strip() == "prog"


def test_functions_and_who_called_them(tmp_path: Path) -> None:
    thread = Thread(77)
    for number, (name, caller) in enumerate([("main", 1 << 40), ("walk", BASE + 0x12)]):
        thread.add(ENTRY_FROM, name, 5 + 1_234_567_890 * number, caller)
    header: dict[str, int | bytes] = {"tracer": 1, "path": bytes(program(tmp_path / "prog"))}
    out = _report(TraceFile([thread], header=header).write(tmp_path / "trace"))
    lines = [re.sub(r"\s+", " ", one) for one in _trace_cmd(out, "-N", "-t")[1:]]
    assert lines == [
        " prog-77 [000] 0.000000005: function: main <-- 0x10000000000",
        " prog-77 [000] 1.234567895: function: walk <-- main",
    ]


@pytest.mark.parametrize("hz", [0, 1_000_000_000])
def test_trace_cmd_reads_what_is_there_alone(hz: int, tmp_path: Path) -> None:
    """valgrind sees what it reads of memory that the file has not filled."""
    if shutil.which("valgrind") is None:
        pytest.skip("needs valgrind")
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog")), "hz": hz}
    thread = Thread(77).add(1, "main", 5).add(2, "main", 1_234_567_895)
    out = _report(TraceFile([thread], header=header).write(tmp_path / "trace"))
    words = ["valgrind", "-q", "--error-exitcode=9", "trace-cmd", "report", "-t", "-i", str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert (" 0.000000005: " in done.stdout) == (hz > 0)


def test_names_that_are_odd(tmp_path: Path) -> None:
    names = ("a b", "\x1b[31m", "Überlauf", "new\nline", "_ZN1a1bIiEEvT_", "x" * 500, "", "f")
    thread = Thread((1 << 32) - 1)
    for number, name in enumerate(("main", "parse", "read_line", "walk", "alloc", "hash")):
        thread.add(1, name, number + 1)
    prog = program(tmp_path / "a prog", names)
    header: dict[str, int | bytes] = {"path": bytes(prog), "comm": b"x y\n\x1b z", "hz": 0}
    lines = _trace_cmd(_report(TraceFile([thread], header=header).write(tmp_path / "trace")))
    shown = [line.partition("|  ")[2].strip().partition("() {")[0] for line in lines[1:]]
    assert shown == ["a_b", "\\x1b[31m", "Überlauf", "new\\nline", "void_a::b<int>(int)", "x" * 500]
    assert re.match(r" *x y\\n\\x1b z-2147483647 +\[000\] +1: funcgraph_entry: ", lines[1])


def test_libraries_and_part_of_the_time(tmp_path: Path) -> None:
    prog, other = program(tmp_path / "prog"), program(tmp_path / "lib a.so", ("inner",))
    held = library(other, 0x1000, 0x1000)
    thread = Thread(7).add(1, "main", 1).add(1, 0x1005, 2000).add(2, 0x1005, 3000)
    file = TraceFile([thread.add(2, "main", 4000)], header={"path": bytes(prog)}, libraries=held)
    out = _report(path := file.write(tmp_path / "trace"))
    assert [text.partition("|  ")[2] for _, text in _theirs(out)] == [
        "main() {",
        "  inner();",
        "} /* main */",
    ]
    late = _report(path, "--time", "0.0000025-")
    assert [text.partition("|  ")[2] for _, text in _theirs(late)] == [
        "  } /* inner */",
        "} /* main */",
    ]


def test_what_is_no_event_of_ftrace(tmp_path: Path) -> None:
    thread = Thread(1).add(1, "main", 0).add(2, "main", 5).add(2, "walk", 6)
    path, out = TraceFile([thread]).write(tmp_path / "trace"), tmp_path / "out"
    told = ftpatch("report", "--format", "trace-dat", path, "-o", out)
    assert told.code == 0 and "events left out because they are no calls: 1\n" in told.err
    only = ProbeFile([Told("p:one main", BASE)], [Thread(1).add(1, 0, 5)]).write(tmp_path / "p")
    done = ftpatch("report", "--format", "trace-dat", only)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "probe events cannot be reported as trace-dat" in done.err


def test_kernelshark(tmp_path: Path) -> None:
    main = Thread(4711).add(1, "main", 100).add(1, "parse", 1_000).add(2, "parse", 3_500)
    other = Thread(4712).add(1, "alloc", 2_500).add(2, "alloc", 4_500)
    header: dict[str, int | bytes] = {"path": bytes(program(tmp_path / "prog"))}
    out = _report(TraceFile([main, other], header=header).write(tmp_path / "trace"))
    done = subprocess.run(
        [sys.executable, "-c", KSHARK, out], capture_output=True, text=True, check=False
    )
    if "libkshark.so.2" in done.stderr:
        pytest.skip("kernelshark is not installed")
    assert done.returncode == 0, done.stderr
    rows = [
        [re.sub(r" +", " ", cell).strip() for cell in one.split(";")]
        for one in done.stdout.splitlines()
    ]
    assert [(row[1], row[2], row[3], row[5], row[6]) for row in rows] == [
        ("100", "prog-4711", "CPU 0", "ftrace/funcgraph_entry", "| main() {"),
        ("1000", "prog-4711", "CPU 0", "ftrace/funcgraph_entry", "2.500 us | parse()"),
        ("2500", "prog-4712", "CPU 1", "ftrace/funcgraph_entry", "2.000 us | alloc()"),
        ("3500", "prog-4711", "CPU 0", "ftrace/funcgraph_exit", "2.500 us | }"),
        ("4500", "prog-4712", "CPU 1", "ftrace/funcgraph_exit", "2.000 us | }"),
    ]
