"""Programs with watches, run: each access that gdb sees is recorded, and nothing else differs."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .command import Result, ftpatch
from .tracer_programs import Form, build
from .watch_gdb import Place, accesses_by_gdb

SIZE = "128K"
SIZES: tuple[tuple[str, Place], ...] = (
    ("rw@flag", ("flag", 0, 1, True)),
    ("port:rw-", ("port", 0, 2, True)),
    ("total:-w-", ("total", 0, 8, False)),
    ("counter:rw-", ("counter", 0, 4, True)),
)
TABLE: tuple[tuple[str, Place], ...] = (("rw@table+20:4", ("table", 20, 4, True)),)


@cache
def _allowed() -> str:
    """Why this machine cannot watch anything; empty where it can."""
    attributes = (ctypes.c_ubyte * 128)()
    variable = ctypes.c_long()
    words = {0: 5, 4: 128}  # PERF_TYPE_BREAKPOINT, size
    for at, value in words.items():
        attributes[at] = value
    attributes[16] = 1  # sample_period
    flags = (1 << 5 | 1 << 6 | 1 << 36 | 1 << 37).to_bytes(8, "little")
    attributes[40:48] = flags
    attributes[52] = 2  # HW_BREAKPOINT_W
    attributes[56:64] = ctypes.addressof(variable).to_bytes(8, "little")
    attributes[64] = 8
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(298, ctypes.byref(attributes), 0, -1, -1, 8)
    if fd < 0:
        return f"perf_event_open: {os.strerror(ctypes.get_errno())}"
    os.close(fd)
    return ""


@pytest.fixture(autouse=True)
def _watches() -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("watches are of x86-64")


def _build(folder: Path, link: str = "pie", level: str = "-O1") -> Path:
    return build(Form(link=link, level=level, site="none"), "watched.c", folder)


def _run(
    program: Path, *args: str, before: Sequence[str] = (), trace: str = "t"
) -> tuple[subprocess.CompletedProcess[bytes], Path]:
    """The program's end, and its trace."""
    place = program.with_name(trace)
    done = subprocess.run(
        [*before, str(program), *args],
        env={**os.environ, "FTPATCH_TRACE": str(place), "FTPATCH_TRACE_SIZE": SIZE},
        capture_output=True,
        timeout=30,
        check=False,
    )
    return done, place


def _watched(folder: Path, *requests: str, link: str = "pie", level: str = "-O1") -> Path:
    if _allowed():
        pytest.skip(_allowed())
    program = _build(folder, link, level)
    target = program.with_name("patched")
    assert ftpatch("watch", program, *requests, "-o", target, "--force").code == 0
    return target


def _rows(*traces: Path) -> list[dict[str, Any]]:
    result = ftpatch("report", "--json", *traces)
    assert result.code == 0 and not result.err.count("internal"), result.err
    return result.json


def _name(row: dict[str, Any]) -> str:
    return str(row["function"]).partition("+")[0]


@pytest.mark.parametrize(
    ("link", "level", "what", "watches"),
    [
        ("pie", "-O0", "sizes", SIZES),
        ("pie", "-O1", "sizes", SIZES),
        ("no-pie", "-O1", "sizes", SIZES),
        ("static", "-O1", "sizes", SIZES),
        ("static-pie", "-O1", "sizes", SIZES),
        ("pie", "-O1", "threads", SIZES),
        ("static", "-O1", "threads", SIZES),
        ("pie", "-O0", "atomics", SIZES),
        ("pie", "-O1", "way", SIZES[3:]),
        ("pie", "-O1", "fill", TABLE),
    ],
)
def test_counts_are_those_of_gdb(
    tmp_path: Path, link: str, level: str, what: str, watches: tuple[tuple[str, Place], ...]
) -> None:
    args = [what]
    patched = _watched(tmp_path, *(text for text, _ in watches), link=link, level=level)
    plain = tmp_path / "watched"
    expected = subprocess.run([str(plain), *args], capture_output=True, timeout=30, check=False)
    done, trace = _run(patched, *args)
    assert (done.stdout, done.stderr, done.returncode) == (expected.stdout, b"", 0)
    rows = _rows(trace)
    ends = [row for row in rows if "hits" in row]
    assert [(row["missed"], row["errno"]) for row in ends] == [(0, 0)] * len(watches)
    accesses = [row for row in rows if "access" in row]
    assert sum(row["hits"] for row in ends) == len(accesses) > 30 * (what != "fill")
    places = [place for _, place in watches]
    numbers = {(name, offset, length): n for n, (name, offset, length, _) in enumerate(places)}
    found: Counter[tuple[int, str]] = Counter()
    for row in accesses:
        number = numbers[row["symbol"], row["offset"], row["length"]]
        assert row["access"], row
        if places[number][3] or row["old"] != row["new"]:  # gdb's `watch` tells changes
            found[number, _name(row)] += 1
    by_gdb = accesses_by_gdb(plain, args, places)
    if what == "fill":  # libc's names differ: with and without its own symbols
        assert sum(by_gdb.values()) == sum(found.values())
    else:
        assert found == by_gdb


def test_two_places_of_one_instruction(tmp_path: Path) -> None:
    """One signal, which is told; the command says so."""
    patched = _watched(tmp_path, "w@table+16:8", "w@table+24:8")
    clause = "of an instruction that comes to both one access is told"
    result = ftpatch("watch", tmp_path / "watched", "w@table+16:8", "w@table+24:8", "--dry-run")
    assert f"ftpatch: w@table+16:8 and w@table+24:8: {clause}\n" in result.err
    rows = [row for row in _rows(_run(patched, "fill")[1]) if "access" in row]
    assert len(rows) >= 3 and {row["access"] for row in rows} == {"w"}


def test_values_and_kinds(tmp_path: Path) -> None:
    patched = _watched(tmp_path, "counter:rw-")
    done, trace = _run(patched, "atomics")
    assert done.returncode == 0
    rows = [row for row in _rows(trace) if "access" in row]
    assert {row["access"] for row in rows if _name(row) == "atomics"} == {"rw"}
    assert {row["access"] for row in rows if _name(row) == "look"} == {"r"}
    writes = [row for row in rows if "w" in row["access"]]
    assert [row["new"] for row in writes[:-1]] == [row["old"] for row in writes[1:]]
    assert all(row["old"] == row["new"] for row in rows if row["access"] == "r")
    assert {row["comm"] for row in rows} == {"patched"}
    assert all(0 <= row["cpu"] < 4096 for row in rows)


def test_the_cpu_is_the_right_one(tmp_path: Path) -> None:
    patched = _watched(tmp_path, "counter:-w-")
    cpu = max(os.sched_getaffinity(0))
    if shutil.which("taskset") is None:
        pytest.skip("no taskset")
    _, trace = _run(patched, before=["taskset", "-c", str(cpu)])
    assert {row["cpu"] for row in _rows(trace) if "access" in row} == {cpu}


def test_a_child_of_fork_has_a_trace_of_its_own(tmp_path: Path) -> None:
    patched = _watched(tmp_path, "counter:rw-")
    done, trace = _run(patched, "fork")
    assert b"child 100\n" in done.stdout
    (child,) = tmp_path.glob("t.*")
    rows = [row for row in _rows(trace, child) if "access" in row]
    assert len({row["pid"] for row in rows}) == 2
    assert [row["access"] for row in rows if row["tid"] != row["pid"]] == []
    own = [(_name(row), row["access"]) for row in rows if str(row["pid"]) in child.name]
    assert own == [("step", "r"), ("step", "w"), ("look", "r")] or own == [
        ("step", "rw"),
        ("look", "r"),
    ]


def test_where_the_signal_is_blocked(tmp_path: Path) -> None:
    patched = _watched(tmp_path, "counter:-w-")
    done, trace = _run(patched, "blocked")
    assert done.returncode == 0
    first, second = [row for row in _rows(trace) if "access" in row][:2]
    assert (first["function"], first["ip"]) == (None, None)
    assert (first["old"], first["new"], second["new"]) == ("0x0", "0x1", "0x2")
    assert "SIGTRAP was blocked   0x0 -> 0x1\n" in ftpatch("report", trace).out


def test_no_events_without_the_kernel(tmp_path: Path) -> None:
    """An emulator without perf_event_open(): the program runs on, and the trace says why."""
    if shutil.which("qemu-x86_64-static") is None:
        pytest.skip("no qemu-x86_64-static")
    program = _build(tmp_path, "static")
    patched = tmp_path / "patched"
    assert ftpatch("watch", program, "counter:rw-", "-o", patched).code == 0
    done, trace = _run(patched, "sizes", before=["qemu-x86_64-static"])
    plain = subprocess.run([str(program), "sizes"], capture_output=True, timeout=30, check=False)
    assert (done.stdout, done.returncode) == (plain.stdout, 0)
    out = ftpatch("report", "--force", trace).out
    assert "# counter:rw-: not watched: errno 38, no perf_event_open(): an emulator" in out
    assert [row["errno"] for row in _rows(trace)] == [38]


FILTER = """
import ctypes, os, struct, sys
# ld [nr]; jeq perf_event_open -> EACCES; allow
code = b"".join(struct.pack("<HBBI", *row) for row in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 298), (0x06, 0, 0, 0x0005000D), (0x06, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(held)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_no_events_where_a_sandbox_forbids_them(tmp_path: Path) -> None:
    program = _build(tmp_path)
    patched = tmp_path / "patched"
    assert ftpatch("watch", program, "counter:rw-", "-o", patched).code == 0
    done, trace = _run(patched, before=[shutil.which("python3") or "python3", "-c", FILTER])
    assert done.returncode == 0, done.stderr
    assert "counter:rw-: not watched: errno 13, the kernel does not permit it" in (
        ftpatch("report", trace).out
    )


def test_descriptors_are_as_without(tmp_path: Path) -> None:
    """Those that a program opens count from 3, as ever."""
    source = tmp_path / "open.c"
    source.write_text(
        "#include <fcntl.h>\n#include <stdio.h>\nvolatile int v;\n"
        'int main(void) { v = open("/dev/null", 0); printf("%d\\n", v); return 0; }\n'
    )
    subprocess.run(["gcc", "-O1", str(source), "-o", str(tmp_path / "open")], check=True)
    patched = tmp_path / "patched"
    assert ftpatch("watch", tmp_path / "open", "v:rw-", "-o", patched).code == 0
    plain = subprocess.run([str(tmp_path / "open")], capture_output=True, timeout=30, check=True)
    assert _run(patched)[0].stdout == plain.stdout


def test_names_of_cpp(tmp_path: Path) -> None:
    source = tmp_path / "names.cpp"
    source.write_text(
        "namespace shop { volatile long stock; }\n"
        "__attribute__((noinline)) void sell(int n) { shop::stock = shop::stock - n; }\n"
        "int main() { sell(3); return 0; }\n"
    )
    if shutil.which("g++") is None or _allowed():
        pytest.skip(_allowed() or "no g++")
    subprocess.run(["g++", "-O1", str(source), "-o", str(tmp_path / "names")], check=True)
    patched = tmp_path / "patched"
    assert ftpatch("watch", tmp_path / "names", "_ZN4shop5stockE:-w-", "-o", patched).code == 0
    (row, _) = _rows(_run(patched)[1])
    assert row["function"].startswith("sell(int)+") and row["new"] == "0xfffffffffffffffd"


def _text(result: Result) -> str:
    assert result.code == 0, result.err
    return result.out


def test_the_report(tmp_path: Path) -> None:
    patched = _watched(tmp_path, "counter:rw-", "total:-w-")
    trace = _run(patched, "threads")[1]
    out = _text(ftpatch("report", trace))
    assert out.startswith(
        "# tracer: ksym_tracer\n#\n"
        "#       TASK-PID   CPU#      Symbol                    Type    Function\n"
    )
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert len(lines) == len([row for row in _rows(trace) if "access" in row])
    assert lines[0].split()[1:4:2] == ["[" + lines[0].split("[")[1][:3] + "]", "RW"]
    assert "# total:-w-           0         0         0" in out
    assert _text(ftpatch("report", trace, "-f", "total")).count("counter+") == 0
    tid = int(lines[0].split("-")[1].split()[0])
    only = _text(ftpatch("report", trace, "--tid", str(tid)))
    assert 0 < only.count("counter+") < out.count("counter+")
    assert "counter+" not in _text(ftpatch("report", trace, "--time", "-0"))
    for name in ("chrome", "function_graph", "folded"):
        refused = ftpatch("report", trace, "--format", name)
        assert refused.code == (0 if name == "function_graph" else 2), name
    assert ftpatch("report", trace, "-f", "nobody").code == 2
