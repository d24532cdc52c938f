# SPDX-License-Identifier: MIT
"""uftrace's folders, read back by uftrace."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.trace_file_programs import native, trace_twice
from tests.support.trace_naive import read
from tests.support.trace_writer import BASE, Thread, TraceFile, library, program
from tests.trace.test_trace_reading import files

pytestmark = pytest.mark.skipif(shutil.which("uftrace") is None, reason="uftrace is not installed")

Records = dict[int, list[tuple[str, str, int, int]]]
RECORD = re.compile(
    r"^(\d+)\.(\d{9}) +(-?\d+): \[(entry|exit ?) *\] (.*)\(([0-9a-f]+)\) depth: (\d+)"
)


def _uftrace(command: str, folder: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["uftrace", command, "--no-pager", "--color=no", "-d", folder, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


def _folder(path: Path, *words: str) -> Path:
    out = path.with_name("folder")
    shutil.rmtree(out, ignore_errors=True)
    result = ftpatch("report", "--format", "uftrace", *words, "-o", out, path)
    assert result.code == 0, result
    return out


def _records(folder: Path) -> Records:
    """By tid: entry or exit, function, time and depth."""
    out: Records = {}
    for line in _uftrace("dump", folder):
        if found := RECORD.match(line):
            time = int(found[1]) * 10**9 + int(found[2])
            row = (found[4].strip(), found[5], time, int(found[7]))
            out.setdefault(int(found[3]), []).append(row)
    return out


def _expected(file: TraceFile) -> Records:
    out: Records = {}
    for thread in file.threads:
        open_ = 0
        for row in read(thread.events):
            if row.event == "entry" or row.depth < open_:  # what was not open has no end
                open_ += 1 if row.event == "entry" else -1
                kind = "entry" if row.event == "entry" else "exit"
                told = (kind, hex(BASE + row.func - 1), row.time, row.depth)
                out.setdefault(thread.tid, []).append(told)
    return out


@settings(max_examples=scaled(60, 10))
@given(files())
def test_records_come_back(tmp_path: Path, file: TraceFile) -> None:
    path = file.write(tmp_path / "trace")
    folder = _folder(path)
    expected = _expected(file)
    if expected:  # uftrace has nothing to say of a folder without records
        assert _records(folder) == expected


def _two(tmp_path: Path, **header: int | bytes) -> Path:
    main = Thread(4711).add(1, "main", 100).add(1, "parse", 1_000).add(1, "hash", 2_000)
    main.add(2, "hash", 3_500).add(2, "parse", 5_000).add(1, "walk", 6_000).add(2, "walk", 9_000)
    other = Thread(4712).add(1, "alloc", 2_500).add(2, "alloc", 4_500)
    header["path"] = bytes(program(tmp_path / "prog"))
    return TraceFile([main.add(2, "main", 10_100), other], header=header).write(tmp_path / "trace")


def test_what_uftrace_prints(tmp_path: Path) -> None:
    folder = _folder(_two(tmp_path))
    lines = [
        line.replace("[", "").lstrip() for line in _uftrace("replay", folder, "-f", "tid,task")[1:]
    ]
    assert [re.sub(r"\s+", " ", line) for line in lines] == [
        "4711] prog | main() {",
        "4711] prog | parse() {",
        "4711] prog | hash() {",
        "4712] prog | alloc() {",
        "4711] prog | } /* hash */",
        "4712] prog | } /* alloc */",
        "4711] prog | } /* parse */",
        "4711] prog | walk();",
        "4711] prog | } /* main */",
    ]
    rows = [line.split() for line in _uftrace("report", folder)[2:]]
    assert rows == [
        ["10.000", "us", "3.000", "us", "1", "main"],
        ["4.000", "us", "2.500", "us", "1", "parse"],
        ["3.000", "us", "3.000", "us", "1", "walk"],
        ["2.000", "us", "2.000", "us", "1", "alloc"],
        ["1.500", "us", "1.500", "us", "1", "hash"],
    ]
    graph = "\n".join(_uftrace("graph", folder, "parse"))
    assert "1.500 us" in graph and "(1) hash" in graph
    info = "\n".join(_uftrace("info", folder))
    assert "4711(prog), 4712(prog)" in info and str(tmp_path / "prog") in info


def test_a_part_of_the_time(tmp_path: Path) -> None:
    """What began before it is left out, and what it called there is outermost."""
    path = _two(tmp_path)
    rows = _records(_folder(path, "--time", "0.0000015-0.0000061"))
    assert rows == {
        4711: [("entry", "hash", 2000, 0), ("exit", "hash", 3500, 0), ("entry", "walk", 6000, 0)],
        4712: [("entry", "alloc", 2500, 0), ("exit", "alloc", 4500, 0)],
    }
    rows = _records(_folder(path, "-f", "parse", "-f", "hash", "--tid", "4711"))
    assert [row[1:] for row in rows[4711]] == [
        ("parse", 1000, 0),
        ("hash", 2000, 1),
        ("hash", 3500, 1),
        ("parse", 5000, 0),
    ]


def test_names_that_are_odd(tmp_path: Path) -> None:
    names = ("a b", "\x1b[31m", "Überlauf", "new\nline", "_ZN1a1bIiEEvT_", "x" * 500, "e", "f")
    thread = Thread((1 << 32) - 1)
    for number, name in enumerate(("main", "parse", "read_line", "walk", "alloc", "hash")):
        thread.add(1, name, number + 1)
    folder_of = program(tmp_path / "a prog", names)
    header: dict[str, int | bytes] = {"path": bytes(folder_of), "comm": b'x "y/\x1b z'}
    folder = _folder(TraceFile([thread], header=header).write(tmp_path / "trace"))
    (rows,) = _records(folder).values()
    shown = [name for _, name, _, _ in rows]
    assert shown == ["a b", "\\x1b[31m", "Überlauf", "new\\nline", "a::b", "x" * 500]
    full = _uftrace("replay", folder, "--demangle=full")
    assert any("a::b<int>(int)" in line for line in full)
    assert 'x "y_\\x1b z' in (folder / "task.txt").read_text()


def test_libraries_and_addresses_anywhere(tmp_path: Path) -> None:
    """Functions of two files that have one address stay two functions."""
    prog, other = program(tmp_path / "prog"), program(tmp_path / "lib a.so", ("inner",))
    held = library(other, 0x1000, 0x1000)
    thread = Thread(7).add(1, "main", 1).add(1, 0x1005, 2).add(2, 0x1005, 3).add(2, "main", 4)
    file = TraceFile([thread], header={"path": bytes(prog)}, libraries=held)
    folder = _folder(file.write(tmp_path / "trace"))
    assert [row[1] for row in _records(folder)[7]] == ["main", "inner", "inner", "main"]
    maps = (folder / "sid-0000000000000000.map").read_text()
    assert "lib_a.so\n" in maps and "prog\n" in maps
    high = TraceFile([Thread(7).add(1, 1, 1).add(2, 1, 2)], header={"base": (1 << 64) - 4096})
    (rows,) = _records(_folder(high.write(tmp_path / "trace"))).values()
    assert [row[1] for row in rows] == [hex((1 << 64) - 4096)] * 2


def test_calls_that_have_no_records_are_counted(tmp_path: Path) -> None:
    thread = Thread(1)
    for level in range(1026):
        thread.add(1, "main", level + 1)
    out = tmp_path / "folder"
    for level in range(1026):
        thread.add(2, "main", 1200 + level)
    path = TraceFile([thread.add(2, "walk", 3000)]).write(tmp_path / "trace")
    result = ftpatch("report", "--format", "uftrace", "-o", out, path)
    assert result.code == 0 and "calls left out below level 1024: 2\n" in result.err
    assert "events left out because they are no calls: 1\n" in result.err
    (rows,) = _records(out).values()
    assert len(rows) == 2048 and max(row[3] for row in rows) == 1023


def test_where_the_folder_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = _two(tmp_path)
    bare = ftpatch("report", "--format", "uftrace", path)
    assert (bare.code, bare.out) == (2, "")
    assert bare.err == "ftpatch: format uftrace writes a folder; name it with -o FOLDER\n"
    Path("there").mkdir()
    Path("there/mine").touch()
    taken = ftpatch("report", "--format", "uftrace", path, "-o", "there", "--force")
    assert taken.code == 2 and "there: the output exists" in taken.err
    lost = ftpatch("report", "--format", "uftrace", path, "-o", "none/there")
    assert lost.code != 0 and "none/there: cannot write" in lost.err
    assert ftpatch("report", "--format", "uftrace", path, "-o", "new").code == 0
    assert Path("new").stat().st_mode & 0o777 == Path("there").stat().st_mode & 0o777
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new", "prog", "there", "trace"]


@native
def test_a_traced_program(tmp_path: Path) -> None:
    """uftrace prints the graph that we print."""
    trace_twice(tmp_path, "uftrace=folder")
    ours = ftpatch("report", tmp_path / "run.trace").out.splitlines()
    theirs = _uftrace("replay", tmp_path / "folder")
    plain = [re.sub(r"^.*\|  ", "", line) for line in ours if not line.startswith("#")]
    assert [re.sub(r"^.*\| ", "", line) for line in theirs[1:]] == plain
