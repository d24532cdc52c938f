# SPDX-License-Identifier: MIT
"""Run in a guest by its own Python: ftpatch on processes of its architecture; test_processes.py
says what is right. Most commands run in this process: to start one takes seconds under emulation.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from ftpatch import cli
from ftpatch.cli import app
from ftpatch.errors import InputError
from ftpatch.process.process import find_process
from ftpatch.process.stop import stopped

__all__ = [
    "CASES", "PATIENCE", "TRACE", "Running", "counted", "done", "forked", "ftpatch", "running",
    "tried",
]  # fmt: skip

TRACE = Path("/tmp/t.trace")
CYCLES = 20
ROUNDS = 300
STOPS = 4
SLOW = re.compile(r"did not stop within|(was|stayed) in .* for \d|hangs")
PATIENCE = 60
"""Seconds after which something hangs, however slow the machine."""


def ftpatch(*words: object) -> tuple[int, str, str]:
    """Run a command in this process: its exit code, and what it printed."""
    sys.argv = ["ftpatch", *map(str, words)]
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = app._run()
    return code, out.getvalue(), err.getvalue()


def forked(meanwhile: Callable[[], None], *words: object) -> tuple[int, str, str]:
    """Run a command in a process of its own, as who calls it does, and do something until it
    ends."""
    out, err = Path("/tmp/out"), Path("/tmp/err")
    child = os.fork()
    if not child:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["ftpatch", *map(str, words)]
        try:
            cli.main()
        except SystemExit as error:
            os._exit(error.code if isinstance(error.code, int) else 1)
        finally:
            os._exit(99)
    ended, status = 0, 0
    while not ended:
        meanwhile()
        ended, status = os.waitpid(child, os.WNOHANG)
    return os.waitstatus_to_exitcode(status), out.read_text(), err.read_text()


def tried(*words: object) -> tuple[int, str, str]:
    """Run a command as ``ftpatch`` does, again where threads did not come to where they have to,
    which they may not on a busy machine."""
    end = time.monotonic() + PATIENCE
    while True:
        if words[0] in ("enable", "probe") and TRACE in words:
            TRACE.unlink(missing_ok=True)
        code, out, err = ftpatch(*words)
        if not code or not SLOW.search(out + err) or time.monotonic() > end:
            return code, out, err


def done(*words: object) -> str:
    """Run a command that must succeed, and return its output."""
    code, out, err = tried(*words)
    assert not code, (words, code, out, err)
    return out


class Running:
    """A program that is told what to do."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.pid = program.pid

    def tell(self, text: str) -> None:
        assert self.program.stdin
        self.program.stdin.write(f"{text}\n")
        self.program.stdin.flush()

    def answer(self) -> str:
        assert self.program.stdout
        return self.program.stdout.readline().strip()

    def ask(self, text: str) -> str:
        self.tell(text)
        return self.answer()

    def maps(self) -> list[str]:
        """Its mappings but for the heap's size, and the stacks that threads leave behind."""
        held = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return [re.sub(r"-\S+", "", line) if "[heap]" in line else line for line in held]

    def clean(self, before: list[str]) -> dict[str, Any]:
        """Its memory and its mappings as they were."""
        code, out, err = ftpatch("check", "--pid", self.pid)
        return {"check": code, "said": out + err, "maps": sorted(set(self.maps()) ^ set(before))}


@contextmanager
def running(*words: str) -> Iterator[Running]:
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as program:
        one = Running(program)
        assert one.answer() == "ready"
        one.ask("c1")  # what it allocates once
        yield one
        program.communicate()
    assert program.returncode == 7


def counted(trace: Path) -> dict[str, int]:
    out = done("report", trace, "--format", "profile")
    rows = (line.split() for line in out.splitlines())
    return {words[-1]: int(words[0]) for words in rows if len(words) > 4 and words[0].isdecimal()}


def reads() -> dict[str, Any]:
    """status, list and check of a process that nobody has touched."""
    with running("/called") as one:
        status = [
            json.loads(line)
            for line in done("status", "--json", "--pid", one.pid).split("\n")
            if line
        ]
        listed = done("list", "--json", "--pid", one.pid).splitlines()
        sites = {json.loads(line)["symbol"]: json.loads(line)["state"] for line in listed}
        return {
            "sites": {Path(row["path"]).name: row["sites"] for row in status},
            "states": sites,
            "check": done("check", "--pid", one.pid),
        }


def _counts(tracer: str, *words: str) -> dict[str, Any]:
    with running("/called", "3") as one:
        before, plain = one.maps(), one.ask("c50")
        done(
            "enable",
            "--pid",
            one.pid,
            "-f",
            "one",
            "-f",
            "two",
            "-o",
            TRACE,
            "--tracer",
            tracer,
            *words,
        )
        traced = one.ask("c50")
        done("undo", "--pid", one.pid)
        after = one.ask("c50")
        clean = one.clean(before)
    return {"plain": plain, "traced": traced, "after": after, "counted": counted(TRACE), **clean}


def function() -> dict[str, Any]:
    return _counts("function")


def function_graph() -> dict[str, Any]:
    return _counts("function_graph")


def _pending(program: str, levels: int) -> dict[str, Any]:
    """Taken out while calls wait: how many return addresses were put back, and what is left."""
    with running(program) as one:
        before = one.maps()
        words = ("-o", TRACE, "--tracer", "function_graph")
        done("enable", "--pid", one.pid, *words)
        assert one.ask(f"d{levels}") == "waiting"
        code, out, err = ftpatch("undo", "--pid", one.pid, "--json")
        first = {"code": code, "said": out + err}
        if not code:
            first |= {"returns": json.loads(out)["returns"], **one.clean(before)}
        answer = one.ask("")
        again = {}
        if code:
            again = {"again": done("undo", "--pid", one.pid), **one.clean(before)}
        after = one.ask("c5")
    return {"first": first, "answer": answer, "after": after, **again}


def pending() -> dict[str, Any]:
    return _pending("/called", 20)


def signed() -> dict[str, Any]:
    return _pending("/signed", 20)


def cycles() -> dict[str, Any]:
    """Taken in and out while threads work and signals arrive."""
    answers = set[str]()
    with running("/called", "3") as one:
        plain, before = one.ask(f"c{ROUNDS}"), one.maps()
        for number in range(CYCLES):
            one.tell(f"s{ROUNDS}")
            tracer = ("function", "function_graph")[number % 2]
            done("enable", "--pid", one.pid, "-o", TRACE, "--tracer", tracer)
            done("undo", "--pid", one.pid)
            answers.add(one.answer())
        clean = one.clean(before)
    return {"plain": plain, "answers": sorted(answers), **clean}


def traces() -> dict[str, Any]:
    """One command that brings the tracer in, waits, takes it out and reports."""
    with running("/called", "2") as one:
        before, plain, answers = one.maps(), one.ask("c50"), set[str]()
        words = ("--seconds", 2, "--tracer", "function_profile", "-f", "two", "-f", "one")
        meanwhile = lambda: answers.add(one.ask("c50"))  # noqa: E731
        code, out, err = forked(meanwhile, "trace", "--pid", one.pid, *words)
        clean = one.clean(before)
    found = {"plain": [plain], "during": sorted(answers), "code": code, "out": out, "err": err}
    return {**found, **clean}


def _states(pid: int) -> str:
    out = ""
    for one in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has ended meanwhile
            out += (one / "stat").read_text().rpartition(")")[2][1]
    return out


def _waited(case: str, wakes: bool, stops: int) -> str:
    """What `waiting CASE` says after it was stopped and let go, and led elsewhere and back, some
    times."""
    pipe = subprocess.PIPE
    with subprocess.Popen(("/waiting", case), stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout
        line = program.stdout.readline()
        if not line.startswith("ready"):
            return line
        pid = int(line.split()[1])
        process, end = find_process(pid), time.monotonic() + PATIENCE
        while set(_states(pid)) != {"S"} and program.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        for number in range(stops):
            try:
                with stopped(process) as world:
                    for thread in world.threads if number % 2 else ():
                        thread.leave(thread.resumed)
            except InputError:
                if wakes:
                    raise
                break  # its time is over
            time.sleep(0.01)
        try:
            out, _ = program.communicate("\n" if wakes else "", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            program.kill()
            return "it waits forever"
    return f"{out.strip()} code {program.returncode}".partition(" ms ")[0]


def calls() -> dict[str, Any]:
    """System calls that wait while their process is stopped and goes on."""
    differ, skipped, number = {}, [], 0
    for case, wakes in json.loads(Path("/cases.json").read_text()).items():
        wanted = _waited(case, wakes, 0)
        if wanted.startswith("skip"):
            skipped.append(case)
            continue
        number += 1
        found = _waited(case, wakes, STOPS)
        if found != wanted:
            differ[case] = [wanted, found]
    return {"number": number, "differ": differ, "skipped": skipped}


CASES: tuple[Callable[[], dict[str, Any]], ...] = (
    *(reads, function, function_graph, pending, signed, cycles, traces, calls),
)
