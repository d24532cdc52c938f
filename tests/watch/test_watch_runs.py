# SPDX-License-Identifier: MIT
"""Programs with watches, run: each access that gdb sees is recorded, and nothing else differs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, Result, ftpatch
from tests.support.watch_gdb import Place, accesses_by_gdb
from tests.support.watch_programs import name_of, refusal, rows_of, run_watched, watched

SIZES: tuple[tuple[str, Place], ...] = (
    ("rw@flag", ("flag", 0, 1, True)),
    ("port:rw-", ("port", 0, 2, True)),
    ("total:-w-", ("total", 0, 8, False)),
    ("counter:rw-", ("counter", 0, 4, True)),
)
TABLE: tuple[tuple[str, Place], ...] = (("rw@table+20:4", ("table", 20, 4, True)),)


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
    patched = watched(tmp_path, *(text for text, _ in watches), link=link, level=level)
    plain = tmp_path / "watched"
    expected = subprocess.run(
        [str(plain), *args], capture_output=True, timeout=PATIENCE, check=False
    )
    done, trace = run_watched(patched, *args)
    assert (done.stdout, done.stderr, done.returncode) == (expected.stdout, b"", 0)
    rows = rows_of(trace)
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
            found[number, name_of(row)] += 1
    by_gdb = accesses_by_gdb(plain, args, places)
    if what == "fill":  # libc's names differ: with and without its own symbols
        assert sum(by_gdb.values()) == sum(found.values())
    else:
        assert found == by_gdb


def test_two_places_of_one_instruction(tmp_path: Path) -> None:
    """One signal, which is told; the command says so."""
    patched = watched(tmp_path, "w@table+16:8", "w@table+24:8")
    clause = "an instruction that accesses both is reported once"
    result = ftpatch("watch", tmp_path / "watched", "w@table+16:8", "w@table+24:8", "--dry-run")
    assert f"ftpatch: w@table+16:8 and w@table+24:8: {clause}\n" in result.err
    rows = [row for row in rows_of(run_watched(patched, "fill")[1]) if "access" in row]
    assert len(rows) >= 3 and {row["access"] for row in rows} == {"w"}


def test_values_and_kinds(tmp_path: Path) -> None:
    patched = watched(tmp_path, "counter:rw-")
    done, trace = run_watched(patched, "atomics")
    assert done.returncode == 0
    rows = [row for row in rows_of(trace) if "access" in row]
    assert {row["access"] for row in rows if name_of(row) == "atomics"} == {"rw"}
    assert {row["access"] for row in rows if name_of(row) == "look"} == {"r"}
    writes = [row for row in rows if "w" in row["access"]]
    assert [row["new"] for row in writes[:-1]] == [row["old"] for row in writes[1:]]
    assert all(row["old"] == row["new"] for row in rows if row["access"] == "r")
    assert {row["comm"] for row in rows} == {"patched"}
    assert all(0 <= row["cpu"] < 4096 for row in rows)


def test_the_cpu_is_the_right_one(tmp_path: Path) -> None:
    patched = watched(tmp_path, "counter:-w-")
    cpu = max(os.sched_getaffinity(0))
    if shutil.which("taskset") is None:
        pytest.skip("no taskset")
    _, trace = run_watched(patched, before=["taskset", "-c", str(cpu)])
    assert {row["cpu"] for row in rows_of(trace) if "access" in row} == {cpu}


def test_a_child_of_fork_has_a_trace_of_its_own(tmp_path: Path) -> None:
    patched = watched(tmp_path, "counter:rw-")
    done, trace = run_watched(patched, "fork")
    assert b"child 100\n" in done.stdout
    (child,) = tmp_path.glob("t.*")
    rows = [row for row in rows_of(trace, child) if "access" in row]
    assert len({row["pid"] for row in rows}) == 2
    assert [row["access"] for row in rows if row["tid"] != row["pid"]] == []
    own = [(name_of(row), row["access"]) for row in rows if str(row["pid"]) in child.name]
    assert own == [("step", "r"), ("step", "w"), ("look", "r")] or own == [
        ("step", "rw"),
        ("look", "r"),
    ]


def test_where_the_signal_is_blocked(tmp_path: Path) -> None:
    patched = watched(tmp_path, "counter:-w-")
    done, trace = run_watched(patched, "blocked")
    assert done.returncode == 0
    first, second = [row for row in rows_of(trace) if "access" in row][:2]
    assert (first["function"], first["ip"]) == (None, None)
    assert (first["old"], first["new"], second["new"]) == ("0x0", "0x1", "0x2")
    assert "SIGTRAP was blocked   0x0 -> 0x1\n" in ftpatch("report", trace).out


def test_names_of_cpp(tmp_path: Path) -> None:
    source = tmp_path / "names.cpp"
    source.write_text(
        "namespace shop { volatile long stock; }\n"
        "__attribute__((noinline)) void sell(int n) { shop::stock = shop::stock - n; }\n"
        "int main() { sell(3); return 0; }\n"
    )
    if shutil.which("g++") is None or refusal():
        pytest.skip(refusal() or "no g++")
    subprocess.run(["g++", "-O1", str(source), "-o", str(tmp_path / "names")], check=True)
    patched = tmp_path / "patched"
    assert ftpatch("watch", tmp_path / "names", "shop::stock:-w-", "-o", patched).code == 0
    trace = run_watched(patched)[1]
    row, end = rows_of(trace)
    assert row["function"].startswith("sell(int)+") and row["new"] == "0xfffffffffffffffd"
    assert (row["symbol"], row["watch"], end["watch"]) == ("shop::stock", *["shop::stock:-w-"] * 2)
    assert " shop::stock+0x0/0x8 " in _text(ftpatch("report", trace, "-f", "shop::*"))
    assert " _ZN4shop5stockE+0x0/0x8 " in _text(ftpatch("report", trace, "--no-demangle"))


def test_what_the_kernel_wrote(tmp_path: Path) -> None:
    """Nobody sees it: what is read then is told, and what stood there before."""
    source = tmp_path / "k.c"
    source.write_text(
        "#include <unistd.h>\nvolatile int v = 1;\n"
        'int main(void) { int p[2]; if (pipe(p) || write(p[1], "\\7\\0\\0\\0", 4) != 4) return 1;\n'
        "v = 2; if (read(p[0], (void *)&v, 4) != 4 || v != 7) return 1; v = 3; return v != 3; }\n"
    )
    if refusal():
        pytest.skip(refusal())
    subprocess.run(["gcc", "-O1", str(source), "-o", str(tmp_path / "k")], check=True)
    patched = tmp_path / "patched"
    assert ftpatch("watch", tmp_path / "k", "v:rw-", "-o", patched).code == 0
    done, trace = run_watched(patched)
    assert done.returncode == 0
    rows = [row for row in rows_of(trace) if "access" in row]
    assert [(row["access"], row["old"], row["new"]) for row in rows] == [
        ("w", "0x1", "0x2"), ("r", "0x2", "0x7"), ("w", "0x7", "0x3"), ("r", "0x3", "0x3")
    ]  # fmt: skip
    out = _text(ftpatch("report", trace))
    assert "  0x7 (was 0x2)\n" in out and "  0x7 -> 0x3\n" in out


def _text(result: Result) -> str:
    assert result.code == 0, result.err
    return result.out


def test_the_report(tmp_path: Path) -> None:
    patched = watched(tmp_path, "counter:rw-", "total:-w-")
    trace = run_watched(patched, "threads")[1]
    out = _text(ftpatch("report", trace))
    assert out.startswith(
        "# tracer: ksym_tracer\n#\n"
        "#       TASK-TID   CPU#      Symbol                    Type    Function\n"
    )
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    assert len(lines) == len([row for row in rows_of(trace) if "access" in row])
    assert lines[0].split()[1:4:2] == ["[" + lines[0].split("[")[1][:3] + "]", "RW"]
    assert "# total:-w-           0         0         0" in out
    assert _text(ftpatch("report", trace, "-f", "total")).count("counter+") == 0
    tid = int(lines[0].split("-")[1].split()[0])
    only = _text(ftpatch("report", trace, "--tid", str(tid)))
    assert 0 < only.count("counter+") < out.count("counter+")
    assert "counter+" not in _text(ftpatch("report", trace, "--time", "-0"))
    for name in ("chrome", "function_graph", "folded"):
        assert ftpatch("report", trace, "--format", name).code == 2, name
    assert ftpatch("report", trace, "-f", "nobody").code == 2
