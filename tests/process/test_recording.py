# SPDX-License-Identifier: MIT
"""Recording switched off and on in a process, whatever makes it record; what was recorded is
compared with what the program was told to do."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import child_env, ftpatch, ftpatch_command
from tests.support.padded import padded

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN __attribute__((noinline, patchable_function_entry(0)))
__attribute__((noinline)) void outer(void);
__attribute__((noinline)) int inner(int n) { __asm__ volatile("" ::: "memory"); return n; }

PLAIN static void obey(void)
{
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		int n = atoi(line + 1);

		if (line[0] == 'i')
			inner(n);
		if (line[0] == 'o')
			outer();
		if (line[0] == 'f' && !fork()) {
			printf("%d\n", getpid());
			fflush(stdout);
			obey();
			_exit(0);
		} else if (line[0] == 'f') {
			wait(0);
			continue;
		}
		printf("done\n");
		fflush(stdout);
		if (line[0] == 'r')
			return;
	}
}

void outer(void)
{
	printf("done\n");
	fflush(stdout);
	obey();
	__asm__ volatile("" ::: "memory");
}

PLAIN int main(void)
{
	printf("ready %d\n", getpid());
	fflush(stdout);
	obey();
	return 0;
}
"""


class Told:
    """The program while it runs: it calls inner, calls outer, in which it goes on, returns from
    it, or forks a child that goes on."""

    def __init__(self, process: subprocess.Popen[str], pid: int) -> None:
        self.process, self.pid = process, pid

    def do(self, *orders: str) -> list[str]:
        """Give orders: i and a number, o, r or f; what it answers."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        said = []
        for order in orders:
            stdin.write(f"{order}\n")
            stdin.flush()
            said.append(stdout.readline().strip())
            if order.startswith("r"):
                assert stdout.readline().strip() == "done"  # of outer's caller
        return said

    def switch(self, *, on: bool, pid: int | None = None) -> None:
        """Switch the recording of it or of another process."""
        verb = "enable" if on else "disable"
        done = ftpatch(verb, "--pid", str(pid or self.pid), "--recording")
        state = "on" if on else "off"
        assert done.code == 0 and f"recording {state}; its sites stay" in done.out, done.err
        told = ftpatch("status", "--pid", str(pid or self.pid), "--json")
        assert {row["recording"] for row in told.json} == {on}, told.err

    def end(self) -> str:
        """Let it end; what is printed after that."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return out


@contextmanager
def _telling(*words: Path | str, **env: str) -> Iterator[Told]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*map(str, words)], stdin=pipe, stdout=pipe, text=True, env={**child_env(), **env}
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:1] == ["ready"], said
        try:
            yield Told(process, int(said[1]))
        finally:
            process.kill()


def _traced(folder: Path, tracer: str, *options: str) -> Path:
    program, traced = padded(folder, SOURCE), folder / "traced"
    words: tuple[Path | str, ...] = (
        "--tracer",
        tracer,
        "-f",
        "inner",
        "-f",
        "outer",
        *options,
        "-o",
        traced,
    )
    done = ftpatch("enable", program, *words)
    assert done.code == 0, done.err
    return traced


def _rows(text: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, text.splitlines()) if "event" in one or "time" in one]


def _events(trace: Path) -> list[str]:
    said = ftpatch("report", trace, "--json")
    assert said.code == 0, said.err
    return [f"{one['depth']} {one['event']} {one['function']}" for one in _rows(said.out)]


ORDERS: Sequence[tuple[str, Sequence[str]]] = [
    # State, then what is done in it.
    ("on", ("i1", "o", "i2", "o")),
    ("off", ("i3", "r", "i4", "o", "i5", "o")),
    ("on", ("i6", "o", "i7", "r", "r")),
    ("off", ("i8",)),
    ("on", ("r", "i9", "r")),
]
RECORDED = """
0 entry inner
0 exit inner
0 entry outer
1 entry inner
1 exit inner
1 entry outer
1 exit outer
1 entry inner
1 exit inner
1 entry outer
2 entry inner
2 exit inner
1 exit outer
1 entry inner
1 exit inner
0 exit outer
"""


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_in_the_middle_of_calls(tmp_path: Path, tracer: str) -> None:
    """Calls of which the entry was recorded end when they do; of all others nothing is there.

    on  i o i o | off i r i o i o | on i o i r r | off i | on r i r
          +---|--------|--------------------------------------- + the first outer's
              +--------+ the second one's
    """
    traced, trace = _traced(tmp_path, tracer), tmp_path / "t.trace"
    with _telling(traced, FTPATCH_TRACE=str(trace)) as program:
        for state, orders in ORDERS:
            program.switch(on=state == "on")
            program.do(*orders)
        program.end()
    expected = RECORDED.split("\n")[1:-1]
    if tracer == "function":
        expected = [f"0 {line[2:]}" for line in expected if "entry" in line]
    assert _events(trace) == expected
    if tracer == "function_graph":
        text = ftpatch("report", trace).out
        assert text.count("{") == text.count("}") and "left" not in text


@pytest.mark.parametrize("how", ["option", "environment"])
def test_it_begins_switched_off(tmp_path: Path, how: str) -> None:
    options = ["--off"] if how == "option" else []
    env = {"FTPATCH_TRACE_OFF": "1"} if how == "environment" else {}
    traced, trace = _traced(tmp_path, "function_graph", *options), tmp_path / "t.trace"
    with _telling(traced, FTPATCH_TRACE=str(trace), **env) as program:
        program.do("i1", "o", "i2")
        program.switch(on=True)
        program.do("i3")
        program.end()
    assert _events(trace) == ["0 entry inner", "0 exit inner"]
    with _telling(traced, FTPATCH_TRACE=str(trace) + "2", FTPATCH_TRACE_OFF="0") as program:
        program.do("i1")
        program.end()
    assert _events(Path(f"{trace}2")) == ["0 entry inner", "0 exit inner"]


def test_it_ends_switched_off(tmp_path: Path) -> None:
    traced, trace = _traced(tmp_path, "function_graph"), tmp_path / "t.trace"
    with _telling(traced, FTPATCH_TRACE=str(trace)) as program:
        program.do("i1")
        program.switch(on=False)
        program.do("i2")
        program.end()
    assert _events(trace) == ["0 entry inner", "0 exit inner"]
    assert "# recording was off at the end\n" in ftpatch("report", trace).out


def test_a_program_that_ftpatch_runs(tmp_path: Path) -> None:
    """Its trace file has no name by which anything could be found."""
    program, trace = padded(tmp_path, SOURCE), tmp_path / "t.trace"
    command = ftpatch_command("trace", "--off", "-o", trace, "--format", "json", "--", program)
    with _telling(*command) as told:
        told.do("i1")
        told.switch(on=True)
        told.do("i2", "i3")
        told.switch(on=False)
        told.do("i4")
        out = told.end()
    assert [one["event"] for one in _rows(out)] == ["entry", "exit"] * 2


def test_a_child_is_switched_by_its_own_number(tmp_path: Path) -> None:
    traced, trace = _traced(tmp_path, "function"), tmp_path / "t.trace"
    with _telling(traced, FTPATCH_TRACE=str(trace)) as program:
        program.do("i1")
        child = int(program.do("f")[0])
        said = ftpatch("disable", "--pid", str(child), "--recording")
        assert said.code == 2 and "no trace file of its own yet" in said.err
        assert f"use --pid {program.pid}" in said.err and said.err.count("\n") == 1
        program.do("i2")
        program.switch(on=False, pid=child)
        program.do("i3")
        program.switch(on=True, pid=child)
        program.do("i4", "i5")
        program.end()
    assert len(_events(trace)) == 4  # children's are part of it
    assert len(_events(Path(f"{trace}.{child}"))) == 3


@pytest.mark.parametrize("place", ["file", "process"])
def test_probes(tmp_path: Path, place: str) -> None:
    """An r probe's hit that has begun is recorded at its end."""
    path = padded(tmp_path, SOURCE, "-fpatchable-function-entry=0")
    probes = ("p:in inner n=$arg1:s32", "r:out outer%return", "r:back inner%return v=$retval:s32")
    trace, program = tmp_path / "t.trace", path
    if place == "file":
        program = tmp_path / "probed"
        assert ftpatch("probe", path, *probes, "--off", "-o", program).code == 0
    with _telling(program, FTPATCH_TRACE=str(trace)) as told:
        if place == "process":
            words: list[Path | str] = [
                "--pid",
                str(told.pid),
                *probes,
                "--off",
                "--keep",
                "-o",
                trace,
            ]
            done = ftpatch("probe", *words)
            assert done.code == 0, done.err
        told.do("i1", "o")
        told.switch(on=True)
        told.do("i2", "r", "o")
        told.switch(on=False)
        told.do("i3", "r", "i4")
        told.switch(on=True)
        told.do("i5")
        if place == "process":
            assert ftpatch("undo", "--pid", str(told.pid)).code == 0
        told.end()
    said = ftpatch("report", trace, "--json")
    hits = [(one["probe"], *one["values"].values()) for one in _rows(said.out)]
    # Of outer, the first call was not seen to begin.
    assert hits == [("in", 2), ("back", 2), ("out",), ("in", 5), ("back", 5)]
    sums = [one for one in map(json.loads, said.out.splitlines()) if "missed" in one]
    assert [one["missed"] for one in sums] == [0, 0, 0]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="watches are there on x86-64")
def test_whatever_records_nothing(tmp_path: Path) -> None:
    program = padded(tmp_path, SOURCE)
    with _telling(program) as told:
        said = ftpatch("enable", "--pid", str(told.pid), "--recording")
        assert said.code == 2 and "it records nothing" in said.err and said.err.count("\n") == 1
        words = ("--pid", str(told.pid), "--tracer", "nop", "-o", tmp_path / "n.trace")
        assert ftpatch("enable", *words).code == 0
        said = ftpatch("disable", "--pid", str(told.pid), "--recording")
        assert said.code == 2 and "the nop tracer records nothing" in said.err
        assert ftpatch("undo", "--pid", str(told.pid)).code == 0
        told.end()
    said = ftpatch("disable", "--pid", str(1 << 22), "--recording")
    assert said.code == 2 and said.err.count("\n") == 1


def test_the_usual_tracer_begins_switched_off(tmp_path: Path) -> None:
    program, trace = padded(tmp_path, SOURCE), tmp_path / "t.trace"
    with _telling(program) as told:
        beside = ("--pid", str(told.pid), "--recording", "--ring")
        said = ftpatch("enable", *beside)
        assert said.code == 2 and "--recording and --ring are mutually exclusive" in said.err
        words = ("--pid", str(told.pid), "-f", "inner", "--off", "--ring", "-o", trace)
        done = ftpatch("enable", *words)
        assert done.code == 0, done.err
        told.do("i1")
        told.switch(on=True)
        told.do("i2")
        assert ftpatch("undo", "--pid", str(told.pid)).code == 0
        told.end()
    said = ftpatch("report", trace)
    assert said.out.startswith("# tracer: function_graph") and said.out.count("inner();") == 1


def test_a_run_that_recorded_nothing_since_it_was_off(tmp_path: Path) -> None:
    program = padded(tmp_path, "int main(void) { return 0; }")
    done = ftpatch("trace", "--off", program)
    assert done.code == 0 and "recording was off; `ftpatch enable --pid PID" in done.err


def test_json(tmp_path: Path) -> None:
    traced, trace = _traced(tmp_path, "function"), tmp_path / "t.trace"
    with _telling(traced, FTPATCH_TRACE=str(trace)) as program:
        said = ftpatch("disable", "--pid", str(program.pid), "--recording", "--json")
        assert json.loads(said.out) == {
            "pid": program.pid,
            "trace": str(trace),
            "recording": False,
        }
        program.end()
