# SPDX-License-Identifier: MIT
"""A program's children in the report of its own file: those that the program says it has, and none
of another run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from unittest import mock

import pytest

import ftpatch
from ftpatch.trace import children
from ftpatch.trace.header import open_trace
from tests.support.command import ftpatch as command
from tests.support.trace_writer import ENTRY, EXIT, PROFILE, Thread, TraceFile, program

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
FAMILY = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void work(int depth)
{
	printf("%d %d\n", (int)getpid(), depth);
	fflush(stdout);
}

static void family(int depth, int children)
{
	work(depth);
	for (int i = 0; depth < 2 && i < children; i++) {
		pid_t pid = fork();
		if (!pid) {
			family(depth + 1, children);
			exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	family(0, atoi(argv[1]));
	if (argc > 2)
		raise(SIGKILL);
	return 0;
}
"""
"""Each process writes its number and whose child it is, as deep as two levels."""


@pytest.fixture(params=["-pie", "-no-pie"])
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    source, plain, patched = (tmp_path / name for name in ("family.c", "plain", "family"))
    source.write_text(FAMILY)
    link = ["-fPIE", "-pie"] if request.param == "-pie" else ["-fno-pie", "-no-pie"]
    flags = ["-O1", "-fpatchable-function-entry=5", *link]
    subprocess.run(["gcc", *flags, source, "-o", plain], check=True)
    done = command("enable", plain, "--tracer", "function_graph", "--size", "128K", "-o", patched)
    assert done.code == 0, done.err
    return patched


def _run(patched: Path, trace: Path | None, *words: str) -> list[int]:
    """The numbers of the processes, as they printed them."""
    env = {name: value for name, value in os.environ.items() if name != "FTPATCH_TRACE"}
    env |= {} if trace is None else {"FTPATCH_TRACE": str(trace)}
    run = [str(patched), *words]
    done = subprocess.run(run, env=env, cwd=patched.parent, capture_output=True, text=True)
    assert done.returncode == (-signal.SIGKILL if "die" in words else 0), done
    return sorted(int(line.split()[0]) for line in done.stdout.splitlines())


def _pids(*words: str | Path) -> list[int]:
    """The processes that call work() in a report."""
    rows = command("report", "--json", *words).json
    return sorted(
        row["pid"] for row in rows if row["event"] == "entry" and row["function"] == "work"
    )


@needs_gcc
def test_children_are_those_that_the_program_has(family: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    first = _run(family, trace, "2")
    second = _run(family, trace, "1")
    assert len(first) == 7 and len(second) == 3 and _pids(trace) == first
    assert _pids("--no-children", trace) == [
        pid for pid in first if not (tmp_path / f"t.{pid}").exists()
    ]
    (other,) = [pid for pid in second if _pids(tmp_path / f"t.{pid}") == second]
    columns = ftpatch.Trace(tmp_path / f"t.{other}").columns()
    assert sorted(columns["pid"][columns["function"] == "work"].tolist()) == second
    alone = ftpatch.Trace(tmp_path / f"t.{other}", children=False)
    assert set(alone.columns()["pid"]) == {other}
    everything = [tmp_path / "t", *tmp_path.glob("t.*")]
    assert _pids(*everything) == sorted([*first, *second])
    said = command("report", trace, "--format", "profile").err
    assert (
        "with 6 files of the program's children: " in said
        and " and 3 more; use --no-children" in said
    )
    assert "newer files, not part of this report: " in said and f"t.{other}" in said


@needs_gcc
def test_a_child_has_children(family: Path, tmp_path: Path) -> None:
    """A branch of the family: what the same program says is below that process."""
    trace = tmp_path / "t"
    pids = _run(family, trace, "2")
    found = {pid: _pids(tmp_path / f"t.{pid}") for pid in pids if (tmp_path / f"t.{pid}").exists()}
    assert sorted(map(len, found.values())) == [1, 1, 1, 1, 3, 3]
    assert all(pid in those for pid, those in found.items())


@needs_gcc
def test_a_parent_that_was_killed(family: Path, tmp_path: Path) -> None:
    """It is not known when it ended: the load address has to tell."""
    trace = tmp_path / "t"
    pids = _run(family, trace, "1", "die")
    header = subprocess.run(["readelf", "-h", family], capture_output=True, text=True).stdout
    named = command("report", trace, "--format", "profile")
    if "DYN" in header:
        assert _pids(trace) == pids and "newer files" not in named.err
    else:
        assert len(_pids(trace)) == 1 and "newer files, not part of this report" in named.err


@needs_gcc
def test_files_that_nobody_named(family: Path, tmp_path: Path) -> None:
    pids, other = _run(family, None, "1"), _run(family, None, "2")
    files = {pid: tmp_path / f"ftpatch.{pid}.trace" for pid in (*pids, *other)}
    assert sorted(tmp_path.glob("*.trace")) == sorted(files.values())
    whole = [pid for pid in (*pids, *other) if len(_pids(files[pid])) in (7,)]
    assert len(whole) == 1 and _pids(files[whole[0]]) == other


@needs_gcc
def test_both_sides_of_a_comparison(family: Path, tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    first, second = _run(family, before, "1"), _run(family, after, "2")
    for words, calls in (((), (len(first), len(second))), (("--no-children",), (1, 1))):
        done = command("report", "--diff", before, after, "--json", *words)
        (row,) = [row for row in done.json if row["function"] == "work"]
        told = json.dumps(row)
        assert all(str(number) in told for number in calls), told
        assert done.err.count("children: ") == (0 if words else 2)


BEGUN = 10**15
PARENT: dict[str, int | bytes] = {
    "pid": 100,
    "ppid": 1,
    "ticks": 10**9,
    "ended_ticks": 5 * 10**9,
    "realtime": BEGUN,
    "hz": 10**9,
    "bias": 0x1000,
    "flags": 2,
    "image_id": b"\1" * 32,
}
CHILD = PARENT | {"pid": 101, "ppid": 100, "ticks": 2 * 10**9, "realtime": BEGUN + 10**9}
OTHERS: dict[str, dict[str, int | bytes]] = {
    "of another parent": {"ppid": 99},
    "of another image": {"image_id": b"\2" * 32},
    "of another tracer": {"tracer": PROFILE},
    "begun before": {"ticks": 10**9 - 1, "realtime": BEGUN - 1},
    "begun after the end": {"ticks": 6 * 10**9, "realtime": BEGUN + 5 * 10**9},
    "of another boot": {"realtime": BEGUN + 3 * 10**9, "ticks": 10**9 + 5},
    "the same process": {"pid": 100},
    "of nobody knows what image": {"image_id": bytes(32)},
}


def _files(folder: Path, parent: dict[str, int | bytes], child: dict[str, int | bytes]) -> int:
    """The number of processes in the report of a file beside which the other one is."""
    path: dict[str, int | bytes] = {"path": bytes(program(folder / "prog"))}
    for name, header in (("t", parent), ("t.101", child)):
        thread = Thread(int(header["pid"]), [(ENTRY, 5, 1), (EXIT, 5, 2)])
        TraceFile([thread], header={"tracer": 2, **header} | path).write(folder / name)
    done = command("report", "--json", folder / "t", "--image", folder / "prog", "--force")
    assert done.code == 0, done.err
    return len({row["tid"] for row in done.json})


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_no_child(what: str, tmp_path: Path) -> None:
    assert _files(tmp_path, PARENT, CHILD) == 2
    parent = PARENT | ({"image_id": bytes(32)} if "nobody knows" in what else {})
    assert _files(tmp_path, parent, CHILD | OTHERS[what]) == 1


@pytest.mark.parametrize(
    ("bias", "child", "number"), [(0x1000, 0x1000, 2), (0x1000, 0x2000, 1), (0, 0, 1)]
)
def test_without_an_end(bias: int, child: int, number: int, tmp_path: Path) -> None:
    running: dict[str, int | bytes] = {"flags": 0, "ended_ticks": 0, "bias": bias}
    assert _files(tmp_path, PARENT | running, CHILD | {"bias": child}) == number


def test_a_child_is_no_place_for_the_report(tmp_path: Path) -> None:
    assert _files(tmp_path, PARENT, CHILD) == 2
    before = (tmp_path / "t.101").read_bytes()
    done = command(
        "report", tmp_path / "t", "--format", "json", "-o", tmp_path / "t.101", "--force"
    )
    assert done.code == 2 and "the output is one of the input traces" in done.err
    assert (tmp_path / "t.101").read_bytes() == before


def test_what_is_no_trace_is_no_child(tmp_path: Path) -> None:
    assert _files(tmp_path, PARENT, CHILD) == 2
    (tmp_path / "t.7").write_text("no trace")
    (tmp_path / "t.8").mkdir()
    os.mkfifo(tmp_path / "t.9")
    (tmp_path / "t.101").write_bytes((tmp_path / "t.101").read_bytes()[:200])
    done = command("report", "--json", tmp_path / "t", "--image", tmp_path / "prog", "--force")
    assert done.code == 0 and len({row["tid"] for row in done.json}) == 1


@needs_gcc
def test_each_child_counts_once(family: Path, tmp_path: Path) -> None:
    """Whatever names it has, and by whichever name the program's file is given."""
    trace = tmp_path / "t"
    pids = _run(family, trace, "1")
    child = next(tmp_path.glob("t.*"))
    (tmp_path / "t.1").symlink_to(child)
    (tmp_path / "t.2").hardlink_to(child)
    (tmp_path / "t.3").write_bytes(child.read_bytes())
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to(trace)
    wanted = _counts(trace)
    assert _pids(trace) == pids == _pids(link) and _counts(trace, trace) == wanted == _counts(link)


@needs_gcc
def test_a_child_that_cannot_be_read_is_named(family: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t"
    _run(family, trace, "1")
    child = next(path for path in tmp_path.glob("t.*"))
    child.write_bytes(child.read_bytes()[:100])
    (tmp_path / "t.1").write_text("a log")
    said = command("report", trace)
    assert said.code == 0 and f"{child}: " in said.err and said.err.count("; left out") == 1
    assert "left out" not in command("report", trace, "--no-children").err


def _counts(*files: Path) -> int:
    return sum(row["event"] == "entry" for row in command("report", "--json", *files).json)


def test_each_file_beside_is_read_once(tmp_path: Path) -> None:
    """For children, for what is damaged, and for what is newer."""
    trace = TraceFile([Thread(1).add(ENTRY, "main", 0).add(EXIT, "main", 9)])
    for name in ("run", "run.2", "run.3"):
        trace.write(tmp_path / name)
    (tmp_path / "run.4").write_bytes(b"FTPTRACE")
    with mock.patch.object(children, "open_trace", wraps=open_trace) as opened:
        done = command("report", tmp_path / "run")
    assert done.code == 0 and "run.4: the header is truncated" in done.err
    paths = [call.args[0].name for call in opened.call_args_list]
    assert sorted(paths) == ["run", "run.2", "run.3", "run.4"]
