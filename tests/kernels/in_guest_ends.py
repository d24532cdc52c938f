# SPDX-License-Identifier: MIT
"""Run in a guest: what is traced changes, ftpatch is killed, or a filter of seccomp is in the way;
test_process_ends.py says what is right."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ftpatch import cli
from tests.kernels.in_guest import TRACE, Running, counted, done, ftpatch, running, tried

__all__ = ["CASES"]

SEED = 20260101
KILLS = 12
ROUNDS = 100
LATEST = 2.0
"""Seconds after which it is killed, at most."""
GETCWD = 17
ALLOW, KILL = 0x7FFF_0000, 0x8000_0000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


def filters() -> dict[str, Any]:
    """Other functions while it runs."""
    with running("/called", "2") as one:
        before, plain = one.maps(), one.ask("c50")
        pid = ("--pid", one.pid)
        done("enable", *pid, "-f", "one", "-o", TRACE, "--tracer", "function")
        answers = [one.ask("c50")]
        done("enable", *pid, "-f", "two")
        answers.append(one.ask("c50"))
        done("disable", *pid, "-f", "one")
        answers.append(one.ask("c50"))
        done("disable", *pid, "--recording")
        answers.append(one.ask("c50"))
        done("enable", *pid, "--recording")
        done("undo", *pid)
        clean = one.clean(before)
    return {"plain": plain, "answers": answers, "counted": counted(TRACE), **clean}


def _killed(after: float, *words: object, both: bool) -> int:
    """Run a command, and kill it after some seconds, with the child that does its work if ``both``;
    return its status."""
    child = os.fork()
    if not child:
        os.setsid()
        null = os.open("/dev/null", os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.argv = ["ftpatch", *map(str, words)]
        try:
            cli.main()
        except SystemExit as error:
            os._exit(error.code if isinstance(error.code, int) else 1)
        finally:
            os._exit(99)
    end = time.monotonic() + after
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    if both:
        with suppress(ProcessLookupError):  # it has not come so far
            os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _nothing_left(one: Running) -> None:
    """Take everything out; a child that outlives its command may have done so."""
    end = time.monotonic() + 60
    while True:
        code, out, err = ftpatch("undo", "--pid", one.pid)
        if not code or "ftpatch is not attached" in err:
            return
        assert time.monotonic() < end, out + err
        time.sleep(0.1)


def kills() -> dict[str, Any]:
    """Killed at random moments; `undo` takes out what was left."""
    rng, codes, answers = random.Random(SEED), list[int](), set[str]()
    with running("/called", "2") as one:
        plain, before = one.ask(f"c{ROUNDS}"), one.maps()
        for number in range(KILLS):
            one.tell(f"s{ROUNDS}")
            TRACE.unlink(missing_ok=True)
            tracer = rng.choice(["function", "function_graph"])
            words = ("enable", "--pid", one.pid, "-o", TRACE, "--tracer", tracer)
            both, after = bool(number % 2), rng.uniform(0.05, LATEST)
            codes.append(_killed(after, *words, both=both))
            if number % 3 == 2:
                after = rng.uniform(0.05, LATEST)
                codes.append(_killed(after, "undo", "--pid", one.pid, both=both))
            _nothing_left(one)
            answers.add(one.answer())
        clean = one.clean(before)
    return {"plain": plain, "answers": sorted(answers), "codes": codes, **clean}


def _filter(number: int) -> bytes:
    """A filter that kills who makes this call: load its number, compare, return."""
    insns = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, KILL), (0x06, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *one) for one in insns)


def _under(number: int) -> None:
    """Install it in this process."""
    code = ctypes.create_string_buffer(_filter(number))
    program = struct.pack("=H6xQ", 4, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, FILTER, program) == 0


def _filtered(number: int) -> dict[str, Any]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ("/called", "2"), stdin=pipe, stdout=pipe, text=True, preexec_fn=lambda: _under(number)
    ) as program:
        one = Running(program)
        assert one.answer() == "ready"
        seccomp = Path(f"/proc/{one.pid}/status").read_text().partition("Seccomp:")[2].split()[0]
        plain, before = one.ask("c20"), one.maps()
        words = ("--pid", one.pid, "-f", "one", "-o", TRACE, "--tracer", "function")
        code, out, err = tried("enable", *words)
        during = one.ask("c20")
        hits = {}
        if not code:
            done("undo", "--pid", one.pid)
            hits = counted(TRACE)
        clean = one.clean(before)
        program.communicate()
    found = {"seccomp": seccomp, "plain": plain, "during": during, "code": program.returncode}
    return {**found, "enable": [code, out, err], "counted": hits, **clean}


def seccomp_lets() -> dict[str, Any]:
    return _filtered(5000)  # no call


def seccomp_refuses() -> dict[str, Any]:
    return _filtered(GETCWD)


CASES = (filters, kills, seccomp_lets, seccomp_refuses)
