# SPDX-License-Identifier: MIT
"""Running processes traced and left again: the program counts its calls, and its memory is
compared with what it was."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.padded import padded
from tests.support.running import address_by_nm, poked, starts_by_maps

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef LIBRARY
int three(int n);
#else
static int three(int n) { return n + 3; }
#endif
__attribute__((noinline)) int one(int n) { __asm__ volatile(""); return n + 1; }
__attribute__((noinline)) int two(int n) { return one(n) * 2 + one(n + 1); }
__attribute__((noinline)) int deep(int n) {
    char line[64];
    if (n) return 1 + deep(n - 1);
    puts("waiting"); fflush(stdout);
    return fgets(line, sizeof(line), stdin) ? 0 : 100;
}
int main(void) {
    char line[64];
    puts("ready"); fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        int n = atoi(line + 1), sum = 0;
        if (*line == 'd') sum = deep(n);
        else for (int i = 0; i < n; i++) sum += two(i) + three(i);
        printf("%d\n", sum); fflush(stdout);
    }
    return 7;
}
"""
LIBRARY = "int three(int n) { return n + 3; }\n"


class Running:
    """A program that is told what to call."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.pid = str(program.pid)

    def ask(self, text: str) -> str:
        """Tell it, and return its answer."""
        assert self.program.stdin and self.program.stdout
        self.program.stdin.write(f"{text}\n")
        self.program.stdin.flush()
        return self.program.stdout.readline().strip()

    def maps(self) -> list[str]:
        """Its mappings but for the heap's size."""
        held = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return [re.sub(r"-\S+", "", line) if "[heap]" in line else line for line in held]


@contextmanager
def _running(*words: str | Path, env: dict[str, str] | None = None) -> Iterator[Running]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **(env or {})}
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        running = Running(program)
        running.ask("c1")  # what it allocates once
        yield running
        program.communicate()
    assert program.returncode == 7


def _sum(n: int) -> str:
    return str(sum((i + 1) * 2 + i + 2 + i + 3 for i in range(n)))


def _clean(running: Running, before: list[str]) -> None:
    assert running.maps() == before
    said = ftpatch("check", "--pid", running.pid)
    assert said.code == 0, said.out


@pytest.mark.parametrize("tracer", ["function", "function_graph", "function_profile"])
@pytest.mark.parametrize("link", ["-pie", "-no-pie", "-static", "-static-pie"])
def test_calls_are_counted(tmp_path: Path, tracer: str, link: str) -> None:
    fpic = "-fno-pie" if link in ("-no-pie", "-static") else "-fpie"
    path, trace = padded(tmp_path, PROGRAM, link, fpic), tmp_path / "t.trace"
    with _running(path) as running:
        before = running.maps()
        words = ("--pid", running.pid, "-f", "one", "-f", "two", "-o", trace, "--tracer", tracer)
        said = ftpatch("enable", *words)
        assert said.code == 0, said.err
        assert running.ask("c100") == _sum(100)
        assert ftpatch("undo", "--pid", running.pid).code == 0
        assert running.ask("c10") == _sum(10)
        _clean(running, before)
    assert _counted(trace) == {"one": 200, "two": 100}


def _counted(trace: Path) -> dict[str, int]:
    said = ftpatch("report", trace, "--format", "profile")
    rows = (line.split() for line in said.out.splitlines())
    return {words[-1]: int(words[0]) for words in rows if len(words) > 4 and words[0].isdecimal()}


def test_pending_calls_return(tmp_path: Path) -> None:
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    with _running(path) as running:
        before = running.maps()
        assert ftpatch("enable", "--pid", running.pid, "-o", trace).code == 0
        assert running.ask("d20") == "waiting"
        said = ftpatch("undo", "--pid", running.pid, "--json")
        assert said.code == 0 and said.only["returns"] == 21
        _clean(running, before)
        assert running.ask("") == "20"


def test_a_call_that_began_before_is_not_hooked(tmp_path: Path) -> None:
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    with _running(path) as running:
        assert running.ask("d20") == "waiting"
        assert ftpatch("enable", "--pid", running.pid, "-o", trace).code == 0
        assert running.ask("") == "20"
        assert running.ask("c5") == _sum(5)
        assert ftpatch("undo", "--pid", running.pid).code == 0
    assert _counted(trace) == {"one": 10, "two": 5}


def test_filters_change_while_it_runs(tmp_path: Path) -> None:
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    with _running(path) as running:
        before = running.maps()
        pid = ("--pid", running.pid)
        assert ftpatch("enable", *pid, "-f", "one", "-o", trace).code == 0
        running.ask("c10")
        assert ftpatch("enable", *pid, "-f", "two").code == 0
        again = ftpatch("enable", *pid, "-f", "two")
        nothing = f"{running.pid} ({path.name}): nothing to change: the selected sites"
        assert again.out.startswith(f"{nothing} call the tracer already\n"), again
        running.ask("c10")
        assert ftpatch("disable", *pid, "-f", "one").code == 0
        assert ftpatch("disable", *pid, "-f", "one").out == f"{nothing} do not call the tracer\n"
        running.ask("c10")
        assert ftpatch("enable", *pid, "-f", "one").code == 0
        running.ask("c1")
        states = {row["symbol"]: row["state"] for row in ftpatch("list", *pid, "--json").json}
        assert {states["one"], states["two"]} == {"call"} and states["main"] == "nop"
        assert ftpatch("undo", *pid).code == 0
        _clean(running, before)
    assert _counted(trace) == {"one": 42, "two": 21}


def test_a_tracer_that_records_nothing(tmp_path: Path) -> None:
    with _running(padded(tmp_path, PROGRAM)) as running:
        before = running.maps()
        done = ftpatch("trace", "--pid", running.pid, "--tracer", "nop", "--seconds", "0.2")
        assert done.code == 0 and not done.out, done.err
        assert "sites traced" in done.err and done.err.count("\n") == 1
        _clean(running, before)


@pytest.mark.parametrize("tracer", ["function", "function_graph", "function_profile"])
def test_recording_off_and_on(tmp_path: Path, tracer: str) -> None:
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    with _running(path) as running:
        pid = ("--pid", running.pid)
        assert ftpatch("enable", *pid, "-f", "one", "-o", trace, "--tracer", tracer).code == 0
        running.ask("c10")
        assert ftpatch("disable", *pid, "--recording").code == 0
        running.ask("c10")
        assert ftpatch("enable", *pid, "--recording").code == 0
        running.ask("c3")
        said = ftpatch("disable", *pid, "--recording", "-f", "one")
        assert said.code == 2 and "--recording and -f are mutually exclusive" in said.err
        assert ftpatch("undo", *pid).code == 0
    assert _counted(trace) == {"one": 26}


def test_a_library_is_traced_as_well(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    library = padded(tmp_path / "lib", LIBRARY, "-shared", "-fpic")
    library = library.rename(library.with_name("libthree.so"))
    path = padded(tmp_path, PROGRAM, "-DLIBRARY", "-Wl,--no-as-needed", str(library))
    trace = tmp_path / "t.trace"
    with _running(path) as running:
        before = running.maps()
        words = ("--lib", "libthree*", "-f", "three", "-f", "two", "-o", trace)
        said = ftpatch("enable", "--pid", running.pid, *words)
        assert said.code == 0, said.err
        assert running.ask("c50") == _sum(50)
        assert ftpatch("undo", "--pid", running.pid).code == 0
        _clean(running, before)
        said = ftpatch("enable", "--pid", running.pid, "-f", "three", "-o", trace, "--force")
        missed = f"filter 'three' matches no site of it, but of {library}; add --lib 'libthree.so'"
        assert said.code == 2 and said.err == f"ftpatch: {path}: {missed}\n"
    assert _counted(trace) == {"three": 50, "two": 50}


def test_its_own_tracer_is_named(tmp_path: Path) -> None:
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    with _running(path) as running:
        pid = ("--pid", running.pid)
        assert ftpatch("enable", *pid, "-f", "one", "-o", trace).code == 0
        (row, *_) = ftpatch("status", *pid, "--json").json
        assert row["targets"] == {"ftpatch (function_graph)": 1}
        undo = f"ftpatch's own tracer, function_graph, which `ftpatch undo --pid {running.pid}`"
        assert undo in ftpatch("status", *pid).out
        (found,) = ftpatch("check", *pid, "--json").json
        assert found["invariant"] == "code-as-file" and found["symbol"].startswith("one")
        words = "a call to ftpatch (function_graph) in memory, a NOP in the file"
        assert found["message"] == words
        assert ftpatch("undo", *pid).code == 0
        assert "own tracer" not in ftpatch("status", *pid).out


def test_a_program_without_call_sites(tmp_path: Path) -> None:
    source = tmp_path / "bare.c"
    source.write_text(PROGRAM)
    path = tmp_path / "bare"
    subprocess.run(["gcc", "-O1", "-w", str(source), "-o", str(path)], check=True)
    with _running(path) as running:
        said = ftpatch("trace", "--pid", running.pid)
        assert said.code == 125 and said.err.count("\n") == 1
        assert f"use `ftpatch probe --pid {running.pid}`, which needs none, or compile" in said.err
        said = ftpatch("probe", "--pid", running.pid, "--seconds", "1")
        assert (
            said.code == 2 and said.err == "ftpatch: no probes; specify a probe, such as 'p main'\n"
        )


def test_errors_leave_everything_as_it_was(tmp_path: Path) -> None:
    path = padded(tmp_path, PROGRAM)
    there = tmp_path / "there"
    there.write_text("")
    with _running(path) as running:
        before = running.maps()
        pid = ("--pid", running.pid)
        for words, wanted in (
            (("-f", "nothing"), "matches no site"),
            (("--lib", "libnothing*"), "matches no library that it has loaded"),
            (("-o", there), "the output exists"),
            (("-o", tmp_path / "none" / "t"), "cannot write: no such directory"),
            (("--to", "one"), "--to does not work with --pid"),
            (("--in-place",), "--in-place does not work with --pid"),
            (("--tracer", "boot"), "--tracer boot does not work with --pid"),
            (("--tracer", "none"), "unknown tracer"),
            (("--tracer", "none", "-o", there), "unknown tracer"),
        ):
            said = ftpatch("enable", *pid, *words)
            assert said.code == 2 and wanted in said.err, (words, said.err)
            assert said.err.count("\n") == 1
        for verb in ("undo", "disable"):
            said = ftpatch(verb, *pid)
            assert said.code == 2 and "ftpatch is not attached" in said.err
        _clean(running, before)


@pytest.mark.parametrize("words", [["-n"], ["-m"], ["-n", "-m"], ["-U", "-r"], ["-U", "-r", "-n"]])
def test_a_process_in_namespaces(tmp_path: Path, words: list[str]) -> None:
    """Its socket is one of its network, and its files have other names."""
    if subprocess.run(["unshare", *words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not make such namespaces")
    path, trace = padded(tmp_path, PROGRAM), tmp_path / "t.trace"
    inside = ["unshare", *words]
    if "-m" in words:
        moved = 'mount -t tmpfs t /mnt && cp "$0" /mnt/moved && mount -t tmpfs t "${0%/*}"'
        inside += ["sh", "-c", f"{moved} && exec /mnt/moved"]
    with _running(*inside, str(path)) as running:
        before = running.maps()
        said = ftpatch("enable", "--pid", running.pid, "-f", "one", "-o", trace)
        assert said.code == 0, said.err
        running.ask("c10")
        assert ftpatch("undo", "--pid", running.pid).code == 0
        _clean(running, before)
        assert _counted(trace) == {"one": 20}


def test_a_breakpoint_of_somebody_else(tmp_path: Path) -> None:
    """As a debugger sets one, and the kernel for a uprobe: int3 in memory alone."""
    path = padded(tmp_path, PROGRAM)
    with _running(path) as running:
        start = starts_by_maps(int(running.pid))[str(path)]
        place = start + address_by_nm(path, "one")
        with Path(f"/proc/{running.pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(place)
            (held,) = memory.read(1)
        poked(int(running.pid), place, b"\xcc")
        what = "a breakpoint that is not in the file; end what set it, such as gdb, or a uprobe"
        pid = ("--pid", running.pid)
        for words in (("enable", *pid, "-f", "one"), ("trace", *pid, "-f", "one")):
            said = ftpatch(*words)
            assert said.code and said.err.startswith(f"ftpatch: {path}: one+0x0/"), said
            assert what in said.err and said.err.count("\n") == 1
        said = ftpatch("probe", *pid, "p one")
        assert said.code == 2 and f"no probe at one+0x0: {what}" in said.err, said
        poked(int(running.pid), place, bytes([held]))
        assert ftpatch("probe", *pid, "p one", "--seconds", "0.1").code == 0
