# SPDX-License-Identifier: MIT
"""What a process records lies where nobody truncates it, until it gets its name: whatever becomes
of the process, and of the name."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ftpatch as api
from tests.support.command import child_env, ftpatch, ftpatch_command, patched_process
from tests.support.padded import padded
from tests.support.stopping import until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int one(int n) { __asm__ volatile(""); return n + 1; }
static void calls(int n) { while (n--) one(n); }
int main(int argc, char **argv) {
    char line[64];
    pid_t first = getpid();
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        int n = atoi(line + 1);
        if (*line == 'x') execv(argv[1], argv);
        if (*line == 'f' && fork()) wait(0);
        else calls(n);
        if (*line == 'f' && getpid() != first) _exit(0);
        puts("done"); fflush(stdout);
    }
    return 7;
}
"""
WAYS = {
    "tracer": ("enable", "-f", "one", "--tracer", "function"),
    "probes": ("probe", "p one", "--keep"),
}


class Recorded:
    """A program that records what it calls to ``trace``."""

    def __init__(self, program: subprocess.Popen[str], trace: Path) -> None:
        self.program, self.trace = program, trace
        self.pid = ("--pid", str(program.pid))

    def ask(self, text: str) -> None:
        assert self.program.stdin and self.program.stdout
        self.program.stdin.write(f"{text}\n")
        self.program.stdin.flush()
        said = self.program.stdout.readline()
        assert said == "done\n", f"it has ended: {self.program.wait()}"

    def hits(self) -> int:
        """How many calls of all processes are recorded, by `report`."""
        report = ftpatch("report", self.trace, "--json")
        assert report.code == 0, report.err
        return sum(row.get("function") == "one" for row in report.json)


@contextmanager
def _recorded(tmp_path: Path, way: str = "tracer") -> Iterator[Recorded]:
    pipe, trace = subprocess.PIPE, tmp_path / "t.trace"
    path = padded(tmp_path, PROGRAM)
    with subprocess.Popen([path, path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        verb, *words = WAYS[way]
        said = ftpatch(verb, "--pid", str(program.pid), *words, "-o", trace)
        assert said.code == 0, said.err
        yield Recorded(program, trace)
        program.kill()
        program.communicate()


def _truncated(folder: Path) -> None:
    """Truncate all that others than the user can meet, permitted or not, and what has its name."""
    for path in folder.iterdir():
        if path.name.startswith("t.trace"):
            path.chmod(0o600)
            os.truncate(path, 0)
    with (folder / "t.trace").open("w"):
        pass


@pytest.mark.parametrize("way", WAYS)
def test_truncated(tmp_path: Path, way: str) -> None:
    with _recorded(tmp_path, way) as one:
        one.ask("c100")
        _truncated(tmp_path)
        one.ask("c100000")
        assert ftpatch("undo", *one.pid).code == 0
        assert one.hits() == 100100


@pytest.mark.parametrize("way", WAYS)
def test_truncated_files_of_children(tmp_path: Path, way: str) -> None:
    with _recorded(tmp_path, way) as one:
        one.ask("f10")
        _truncated(tmp_path)
        one.ask("f20")
        assert ftpatch("undo", *one.pid).code == 0
        assert one.hits() == 10 + 20
        assert len(list(tmp_path.glob("t.trace*"))) == 3


def test_truncated_while_the_command_waits(tmp_path: Path) -> None:
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    pipe = subprocess.PIPE
    with subprocess.Popen([path, path], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        one = Recorded(program, trace)
        words = ftpatch_command("trace", *one.pid, "-f", "one", "-o", trace, "--tracer", "function")
        with subprocess.Popen(words, env=child_env(), stdout=subprocess.DEVNULL) as command:
            until(lambda: ftpatch("check", *one.pid).code == 1, 60)
            one.ask("f10")
            _truncated(tmp_path)
            one.ask("c1000")
            command.terminate()
        assert command.returncode == 0
        program.kill()
        assert one.hits() == 1010


def _is_named(one: Recorded) -> bool:
    """Whether the file has its name, and nothing else is left of the recording."""
    beside = sorted(path.name for path in one.trace.parent.iterdir() if "trace" in path.name)
    return beside == ["t.trace"] and stat.S_IMODE(one.trace.stat().st_mode) == 0o600


def test_the_name_comes_with_the_end(tmp_path: Path) -> None:
    with _recorded(tmp_path) as one:
        one.ask("c10")
        assert one.hits() == 10 and not one.trace.exists()
        assert len(api.Trace(one.trace).columns()["function"]) == 10
        assert ftpatch("undo", *one.pid).code == 0
        assert _is_named(one) and one.hits() == 10
        assert one.trace.stat().st_size < 1 << 20


@pytest.mark.parametrize("end", ["killed", "exec", "exit"])
def test_the_program_ends_by_itself(tmp_path: Path, end: str) -> None:
    with _recorded(tmp_path) as one:
        one.ask("c10")
        if end == "killed":
            one.program.kill()
        elif end == "exec":
            assert one.program.stdin and one.program.stdout
            one.program.stdin.write("x\n")
            one.program.stdin.flush()
            assert one.program.stdout.readline() == "ready\n"
        else:
            one.program.communicate()
        if end != "exec":
            one.program.wait()
        assert one.hits() == 10
        assert _is_named(one)
        if end == "exec":
            assert ftpatch("undo", *one.pid).code == 0


def test_undo_after_exec_names_it(tmp_path: Path) -> None:
    with _recorded(tmp_path) as one:
        one.ask("c10")
        assert one.program.stdin and one.program.stdout
        one.program.stdin.write("x\n")
        one.program.stdin.flush()
        assert one.program.stdout.readline() == "ready\n"
        assert ftpatch("undo", *one.pid).code == 0
        assert _is_named(one) and one.hits() == 10


def test_somebody_takes_the_name(tmp_path: Path) -> None:
    """Nothing of theirs is overwritten, and nothing of ours is lost."""
    with _recorded(tmp_path) as one:
        one.ask("c10")
        one.trace.write_text("theirs")
        said = ftpatch("undo", *one.pid)
        assert said.code == 2 and "1 site restored" in said.out
        assert "t.trace: somebody has made this file meanwhile" in said.err
        assert one.trace.read_text() == "theirs"
        one.trace.rename(tmp_path / "theirs")
        assert one.hits() == 10 and _is_named(one)


KILLED = """
import os, signal
from ftpatch.tracer.server import Server
os.setsid()
Server._serve_one = lambda *_: os.killpg(0, signal.SIGKILL)
"""


def test_killed_before_it_took_the_place_of_an_earlier_run(tmp_path: Path) -> None:
    """The process makes the file itself, and ``undo`` still knows that the earlier one may go."""
    with _recorded(tmp_path) as one:
        one.ask("f10")
        assert ftpatch("undo", *one.pid).code == 0
        earlier = sorted(tmp_path.glob("t.trace*"))
        assert len(earlier) == 2
        enable = ("enable", *one.pid, "-f", "one", "--tracer", "function", "-o", one.trace)
        assert patched_process(KILLED, *enable, "--force").code == -signal.SIGKILL
        place = tmp_path / ".t.trace.recording" / "t.trace"
        until(place.exists)
        assert all(path.exists() for path in earlier)  # until then it may be needed
        said = ftpatch("undo", *one.pid)
        assert said.code == 0, said.err
        assert not place.parent.exists() and not earlier[1].exists()
        assert one.hits() == 0 and _is_named(one)
        assert ftpatch(*enable, "--force").code == 0
        one.ask("c10")
        assert ftpatch("undo", *one.pid).code == 0
        assert one.hits() == 10


def test_a_name_that_is_recorded_to_is_taken(tmp_path: Path) -> None:
    with _recorded(tmp_path) as one:
        one.ask("c10")
        with _others(tmp_path) as other:
            for force in ([], ["--force"]):
                said = ftpatch("enable", "--pid", other, "-o", one.trace, *force)
                assert said.code == 2
                assert f"still written by process {one.program.pid}" in said.err
            one.program.kill()
            one.program.wait()
            said = ftpatch("enable", "--pid", other, "-o", one.trace)
            assert said.code == 2 and "the output exists" in said.err
            assert one.hits() == 10
            assert ftpatch("enable", "--pid", other, "-o", one.trace, "--force").code == 0
            assert ftpatch("undo", "--pid", other).code == 0
        assert one.hits() == 0


@contextmanager
def _others(tmp_path: Path) -> Iterator[str]:
    """Another process of the same program."""
    pipe = subprocess.PIPE
    with subprocess.Popen([tmp_path / "prog"], stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        yield str(program.pid)
        program.kill()


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    """Nobody lays out for us where to write to."""
    path = padded(tmp_path, PROGRAM)
    folder = tmp_path / ".t.trace.recording"
    folder.mkdir()
    folder.chmod(0o777)
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None and program.stdout.readline() == b"ready\n"
        said = ftpatch("enable", "--pid", str(program.pid), "-o", tmp_path / "t.trace")
        assert said.code == 2 and "not a directory that only you can write to" in said.err
        program.kill()
