# SPDX-License-Identifier: MIT
"""What ``trace`` says of a recording in which something is missing, or which has nothing."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.support.command import ftpatch_process
from tests.support.padded import padded
from tests.support.running import running

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
FIB = r"""
#include <stdlib.h>
__attribute__((noipa)) static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noipa)) static int never(int n) { return n; }
int main(int argc, char **argv) { return argc > 9 ? never(argc) : fib(atoi(argv[1])) & 0; }
"""
SERVER = r"""
#include <stdio.h>
#include <unistd.h>
__attribute__((noipa)) static int tick(void) { return usleep(1000); }
__attribute__((noipa)) static int serve(void)
{
    puts("ready");
    fflush(stdout);
    for (;;)
        tick();
}
int main(void) { return serve(); }
"""
CALLS = 57313
"""Of fib(22)."""
EMPTY = "no selected function was called"


@pytest.fixture(scope="module")
def fib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Call fib(N)."""
    return padded(tmp_path_factory.mktemp("fib"), FIB)


@pytest.mark.parametrize("words", [(), ("-o", "kept"), ("--report", "chrome=page.json")])
def test_lost_events_are_told_once(words: tuple[str, ...], fib: Path, tmp_path: Path) -> None:
    """They are also in the report that is printed, for whoever reads that."""
    result = ftpatch_process("trace", "--size", "64K", *words, fib, "22", cwd=tmp_path)
    (line,) = result.err.splitlines()
    number, told = line.removeprefix("ftpatch: ").split(maxsplit=1)
    assert CALLS - (64 << 10) // 16 <= int(number) < CALLS
    advice = "use a larger --size, or fewer functions (-f, -n)"
    assert told == f"events lost when the trace file was full: {advice}"
    note = f"{number} events lost when the trace file was full (--size)"
    if "--report" in words:
        page = json.loads((tmp_path / "page.json").read_text())
        assert note in page["otherData"]["notes"] and not result.out
    else:
        assert result.out.splitlines()[2] == f"# {note}"


def test_nothing_lost_nothing_told(fib: Path) -> None:
    assert ftpatch_process("trace", fib, "3").err == ""


def test_a_full_stack(fib: Path) -> None:
    told = ftpatch_process("trace", "--max-stack", "8", fib, "12").err
    assert told.endswith(" events lost when ret_stack was full: use a larger --max-stack\n")


@pytest.mark.parametrize("tracer", ["function", "function_graph", "function_profile"])
def test_calls_that_had_begun_before(tracer: str, tmp_path: Path) -> None:
    """Of what never returns nothing is seen in a running process: no table says why not."""
    with running(padded(tmp_path, SERVER)) as server:
        time.sleep(0.1)
        words = ("trace", "--pid", str(server.pid), "--seconds", "0.2", "--tracer", tracer)
        result = ftpatch_process(*words, "-f", "serve", "-f", "main")
        both = ftpatch_process(*words, "-f", "serve", "-f", "tick")
        server.terminate()
    assert result.code == 0 and result.out == ""
    line = result.err.splitlines()[-1]
    assert line.startswith(f"ftpatch: {server.pid} (prog): {EMPTY} while it was traced, ")
    assert "calls that had begun before are not recorded" in line
    assert "tick" in both.out and EMPTY not in both.err


def test_a_program_without_a_call(fib: Path, tmp_path: Path) -> None:
    """A file that was asked for is written all the same."""
    result = ftpatch_process("trace", "-f", "never", fib, "3")
    assert (result.code, result.out, result.err) == (0, "", f"ftpatch: {fib}: {EMPTY}\n")
    page = tmp_path / "page.json"
    result = ftpatch_process("trace", "-f", "never", "--report", f"chrome={page}", fib, "3")
    assert result.err == f"ftpatch: {fib}: {EMPTY}\n" and json.loads(page.read_text())


def test_no_program_is_one_line() -> None:
    said = ftpatch_process("trace")
    hint = "name a program, or a running process"
    assert (said.code, said.out, said.err) == (125, "", f"ftpatch: no PROG and no --pid; {hint}\n")


@pytest.mark.parametrize("form", ["function_graph", "function", "json"])
def test_filters_that_leave_nothing_are_named(form: str, fib: Path, tmp_path: Path) -> None:
    trace = tmp_path / "fib.trace"
    assert ftpatch_process("trace", "-o", trace, fib, "5").code == 0
    words = ("report", trace, "--format", form, "-f", "fib")
    whole = ftpatch_process(*words, "--time", "0-9")
    assert whole.code == 0 and whole.err == "" and "fib" in whole.out
    none = ftpatch_process(*words, "--time", "8-9", "-t", "1s")
    assert none.code == 0 and "fib" not in none.out
    told = "ftpatch: no event passes --time and --filter and --time-filter\n"
    assert none.err == ("" if form == "json" else told)
