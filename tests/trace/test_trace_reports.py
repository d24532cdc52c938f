# SPDX-License-Identifier: MIT
"""What ``ftpatch trace`` is to report: checked before the program runs, and written beside it."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import child_env, ftpatch, ftpatch_command, ftpatch_process
from tests.support.padded import padded
from tests.support.trace_writer import TraceFile, program

needs_gcc = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
PROGRAM = r"""
#include <stdio.h>
__attribute__((noinline)) int twice(int n) { fclose(fopen("ran", "w")); return 2 * n; }
int main(void) { return twice(3); }
"""
"""It waits for the disk in twice(): a flame graph leaves out what takes no time beside the rest."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that leaves a file where it ran, and ends with 6."""
    return padded(tmp_path_factory.mktemp("prog"), PROGRAM)


@needs_gcc
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--format flamegrph", "unknown format 'flamegrph'; did you mean flamegraph?"),
        ("--format json=x", "--format 'json=x' names a file; use --report json=x; with"),
        ("--format xml", "unknown format 'xml'; use function, function_graph,"),
        ("--format probes", "calls cannot be reported as probes; use function_graph"),
        ("--tracer function --format folded", "does not record returns, and folded needs them"),
        (
            "--tracer function_profile --format chrome",
            "a profile cannot be reported as chrome; use",
        ),
        ("--tracer functoin", "unknown tracer 'functoin'; did you mean function"),
        ("--tracer nop --format json", "the nop tracer records no events"),
        ("--report x.html", "--report 'x.html' is no format; use --report html=x.html"),
        ("--report d/x.json", "--report 'd/x.json' is no format; use --report json=d/x.json"),
        ("--report x.pb", "--report 'x.pb' is no format; use --report pprof=x.pb"),
        ("--report x.zip", "unknown format 'x.zip'; use function,"),
        ("--report xml=x", "unknown format 'xml'"),
        ("--report json=", "--report 'json=' is not FORMAT or FORMAT=FILE"),
        ("--report =x", "--report '=x' is not FORMAT or FORMAT=FILE"),
        ("--report json=missing/x", "missing/x: cannot write: No such file or directory"),
        ("--report json=there", "there: the output exists; use --force to overwrite it"),
        ("--report json=.", "the output is a directory"),
        ("--report json=x --report chrome=x", "x: would overwrite another file of this run"),
        ("-o x --report json=./x", "x: would overwrite another file of this run"),
        ("--report json=PROG --force", "prog: would overwrite another file of this run"),
        (
            "--format json --report folded",
            "only one report can be printed; write one of them to a file",
        ),
        ("-o x.html --format flamegraph", "to write a report, use --report flamegraph=x.html"),
        ("-o x.html", "to write a report, use --report flamegraph=x.html"),
        ("-o x.json --format chrome", "to write a report, use --report chrome=x.json"),
        ("-o x.txt", "to write a report, use --report function_graph=x.txt"),
        ("-o missing/x", "missing/x: cannot write: no such directory"),
    ],
)
def test_what_is_wrong_is_said_before_it_runs(
    words: str, reason: str, compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").touch()
    monkeypatch.chdir(tmp_path)
    result = ftpatch("trace", *words.replace("PROG", str(compiled)).split(), compiled)
    assert result.code == 125 and reason in result.err, result.err
    assert result.err.count("\n") == 1 and not result.out
    assert [path.name for path in tmp_path.iterdir()] == ["there"], "it did not run"


@needs_gcc
@pytest.mark.parametrize("form", ["perfetto", "flamegraph"])
def test_what_is_not_for_a_terminal_is_said_before_it_runs(
    form: str, compiled: Path, tmp_path: Path
) -> None:
    parent, child = pty.openpty()
    command = ftpatch_command("trace", "--format", form, str(compiled))
    environment = child_env()
    pipe = subprocess.PIPE
    done = subprocess.run(
        command, env=environment, stdout=child, stderr=pipe, check=False, cwd=tmp_path
    )
    os.close(child)
    os.close(parent)
    assert done.returncode == 125
    assert f"cannot be written to a terminal; use --report {form}=FILE".encode() in done.stderr
    assert not list(tmp_path.iterdir()), "it did not run"


@needs_gcc
def test_reports_beside_a_recording(compiled: Path, tmp_path: Path) -> None:
    words = ["--report", "flamegraph=x.html", "--report", "json=x.json", "-o", "x.trace"]
    result = ftpatch_process("trace", *words, compiled, cwd=tmp_path)
    assert (result.code, result.out, result.err) == (6, "", ""), "nothing is printed unasked"
    page = (tmp_path / "x.html").read_text()
    assert page.startswith("<!doctype html>") and "twice" in page
    rows = [json.loads(line) for line in (tmp_path / "x.json").read_text().splitlines()]
    assert {row["function"] for row in rows} == {"main", "twice"}
    own = ftpatch("report", "--format", "flamegraph", tmp_path / "x.trace", "-o", tmp_path / "y")
    assert own.code == 0 and (tmp_path / "y").read_text() == page
    both = ["--format", "function", "--report", "json=x.json", "--force"]
    result = ftpatch_process("trace", *both, compiled, cwd=tmp_path)
    assert result.code == 6 and result.out.startswith("# tracer: function\n")
    printed = ftpatch_process("trace", "--report", "folded", compiled, cwd=tmp_path)
    assert printed.code == 6 and printed.out.startswith("main")


@needs_gcc
def test_the_report_of_an_older_trace_names_the_newer_one(compiled: Path, tmp_path: Path) -> None:
    """A second run does not overwrite the first, but writes NAME.PID."""
    patched = tmp_path / "patched"
    done = ftpatch("enable", compiled, "--tracer", "function_graph", "-o", patched)
    assert done.code == 0
    trace = tmp_path / "x.trace"
    environment = {"FTPATCH_TRACE": str(trace)}
    for _ in range(2):
        subprocess.run([patched], env=environment, cwd=tmp_path, check=False)
    (second,) = tmp_path.glob("x.trace.*")
    (tmp_path / "x.trace.7").write_text("no trace at all")
    said = ftpatch("report", trace)
    assert said.code == 0
    assert said.err == f"ftpatch: newer files, not part of this report: {second}\n"
    assert ftpatch("report", trace, second).err == ""
    assert ftpatch("report", second).err == ""


def test_newer_traces_are_named(tmp_path: Path) -> None:
    image = program(tmp_path / "prog")
    header: dict[str, int | bytes] = {"path": bytes(image)}
    for name, when in (("t", 50), ("t.1", 40), ("t.2", 60), ("t.2.3", 70), ("tt.4", 80)):
        TraceFile(header=header | {"realtime": when}).write(tmp_path / name)
    assert ftpatch("report", tmp_path / "t").err.endswith(
        f"not part of this report: {tmp_path}/t.2.3, {tmp_path}/t.2\n"
    )
    assert ftpatch("report", *(tmp_path / name for name in ("t", "t.2", "t.2.3"))).err == ""
    for number in range(5, 9):
        TraceFile(header=header | {"realtime": 100 + number}).write(tmp_path / f"t.{number}")
    said = ftpatch("report", tmp_path / "t", "-f", "nothing").err
    assert "t.8" in said and "t.7" in said and "t.6 and 3 more\n" in said
    assert said.count("\n") == 2, "also where the report comes to nothing"
