# SPDX-License-Identifier: MIT
"""Run in a guest: exceptions and backtraces through traced returns, in a program and its library
(tests/programs/walks.cc); test_process_walks.py says what is right."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.kernels.in_guest import PATIENCE, TRACE, Running, counted, done, ftpatch, tried

__all__ = ["CASES"]

LIBRARY = "libthrough.so"
SECONDS = 1


class _Walks(Running):
    """The program, which says in the end what was wrong."""

    said = ""
    code = -1

    def enabled(self, tracer: str = "function_graph") -> None:
        done("enable", "--pid", self.pid, "--lib", LIBRARY, "--tracer", tracer, "-o", TRACE)


@contextmanager
def _walking(*words: str) -> Iterator[_Walks]:
    pipe = subprocess.PIPE
    with subprocess.Popen(("/walks", *words), stdin=pipe, stdout=pipe, text=True) as program:
        one = _Walks(program)
        assert one.answer() == "ready"
        yield one
        one.said, _ = program.communicate()
    one.code = program.returncode


def _left(one: Running) -> None:
    """Take the tracer out, whatever lies on the stacks of threads that have ended."""
    end = time.monotonic() + PATIENCE
    while (said := tried("undo", "--pid", one.pid))[0]:
        assert time.monotonic() < end and "stays mapped" in said[2], said


def _passed(tracer: str, laps: int) -> dict[str, Any]:
    """Four threads throw, are cancelled and look who called, while the tracer comes and goes."""
    seen = set[str]()
    with _walking() as one:
        for _ in range(laps):
            one.enabled(tracer)
            time.sleep(SECONDS)
            _left(one)
            seen |= counted(TRACE).keys()
        code, out, err = ftpatch("check", "--pid", one.pid)
    return {"check": [code, out + err], "said": one.said, "code": one.code, "seen": sorted(seen)}


def walks_graph() -> dict[str, Any]:
    return _passed("function_graph", 2)


def walks_profile() -> dict[str, Any]:
    return _passed("function_profile", 1)


def walks_left() -> dict[str, Any]:
    """Taken out while an exception's clean-up code runs."""
    with _walking("step") as one:
        before = one.maps()
        one.enabled()
        places = [one.ask("")]
        done("undo", "--pid", one.pid)
        clean = one.clean(before)
        places += [one.ask("") for _ in range(3)]
    return {"places": places, "out": one.said, "code": one.code, **clean}


def walks_awaited() -> dict[str, Any]:
    """Taken out in the midst of a walk, which is waited for, and then of none."""
    with _walking("step") as one:
        before = one.maps()
        one.enabled()
        places = [one.ask("") for _ in range(3)]
        undone = ftpatch("undo", "--pid", one.pid)
        places.append(one.ask(""))
        done("undo", "--pid", one.pid)
        clean = one.clean(before)
    return {"places": places, "undone": undone, "out": one.said, "code": one.code, **clean}


CASES = (walks_graph, walks_profile, walks_left, walks_awaited)
