"""Programs that are hard on a tracer: frames that are away, processes that libc does not know of,
system calls that are given up, registers that nobody else would keep a value in.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .tracer_programs import TRACERS, Form, build, differences

HOOKS = ("function_graph", "function_profile")
"""Those that replace return addresses; the others change nothing that these programs look at."""
OTHERS = tuple(tracer for tracer in TRACERS if tracer not in HOOKS)
ALONE = ("-fno-optimize-sibling-calls",)
"""Flags that leave tail calls out."""

STALE = (
    "the unwind expression takes the first frame of that slot, of any thread: neither the caller's "
    "own nor the latest"
)
SHARED = "two processes with one thread pointer use one struct thread at the same time"
PREEMPTED = (
    "a handler that switches to another stack leaves the tracer in the middle; it goes on later "
    "with what it had read of the ret_stack before"
)
KILLED = "a child's first call makes a file, by system calls that it may have given up"
LOCKED = "mlockall() locks the 200 MB of the region, which are nobody's"
FORMS = {
    "O0": Form(level="-O0"),
    "O2": Form(level="-O2"),
    "static": Form(level="-O3", link="static"),
    "alone": Form(level="-O2", more=ALONE),
    "bare": Form(level="-O2", site="none"),
    "fentry": Form(level="-O2", site="fentry"),
    "O0-static": Form(level="-O0", link="static"),
    "chain": Form(level="-O0", link="static", site="fentry"),
}
CASES: list[tuple[str, str, str, str]] = [
    # program, its argument, form, why it fails
    ("wanders.c", "tail", "O2", ""),
    ("wanders.c", "tail", "static", ""),
    ("wanders.c", "tail", "O0", ""),
    ("wanders.c", "tail", "alone", ""),
    ("wanders.c", "handler", "O2", ""),
    ("wanders.c", "handler", "alone", ""),
    ("wanders.c", "tail-thread", "O2", ""),
    ("wanders.c", "tail-thread", "alone", ""),
    ("wanders.c", "reused", "alone", ""),
    ("wanders.c", "reused", "O0", ""),
    ("wanders.c", "outlived", "alone", ""),
    ("wanders.c", "outlived", "O0", ""),
    ("stale.cpp", "", "alone", ""),
    ("stale.cpp", "throw", "alone", STALE),
    ("stale.cpp", "moved", "alone", ""),
    ("forks.c", "raw", "O2", ""),
    ("forks.c", "raw", "static", ""),
    ("forks.c", "shared", "O0-static", SHARED),
    ("forks.c", "alarm", "O2", ""),
    ("preempts.c", "", "O2", PREEMPTED),
    ("preempts.c", "", "static", PREEMPTED),
    ("sandbox.c", "strict", "O2", ""),
    ("sandbox.c", "strict", "static", ""),
    ("sandbox.c", "faults", "O2", ""),
    ("sandbox.c", "strict-first", "O2", KILLED),
    ("sandbox.c", "forking", "O2", KILLED),
    ("limits.c", "locked", "O2", LOCKED),
    ("scarce.c", "", "bare", ""),
    ("registers.c", "", "O2", ""),
    ("registers.c", "", "fentry", ""),
    ("nested.c", "", "fentry", ""),
    ("nested.c", "", "chain", ""),
    ("nested.c", "", "O2", ""),
]
CHANCE = {("preempts.c", ""), ("forks.c", "shared"), ("forks.c", "alarm")}
"""What has to meet the tracer in the wrong moment: tried several times."""
EVERY = {KILLED, LOCKED}
"""What concerns all tracers that record."""


def _cases() -> list[object]:
    cases: list[object] = []
    for program, mode, form, reason in CASES:
        tracers = ["function_graph", "function_profile"]
        if reason in EVERY or program == "sandbox.c":
            tracers.append("function")
        for tracer in tracers:
            always = (program, mode) not in CHANCE
            marks = [pytest.mark.xfail(strict=always, reason=reason)] if reason else []
            name = f"{program}-{mode}-{form}-{tracer}"
            cases.append(pytest.param(program, mode, form, tracer, marks=marks, id=name))
    return cases


@pytest.mark.parametrize(("program", "mode", "form", "tracer"), _cases())
def test_it_does_what_it_did(
    program: str, mode: str, form: str, tracer: str, tmp_path: Path
) -> None:
    built = build(FORMS[form], program, tmp_path)
    times = 6 if (program, mode) in CHANCE else 1
    assert not differences(built, [[mode]] * times, [tracer])


@pytest.mark.parametrize(
    ("program", "mode"),
    sorted({(program, mode) for program, mode, _, reason in CASES if reason not in EVERY}),
)
def test_tracers_without_hooks_do_no_harm(program: str, mode: str, tmp_path: Path) -> None:
    form = FORMS["bare"] if program == "scarce.c" else FORMS["O2"]
    built = build(form, program, tmp_path)
    assert not differences(built, [[mode]], OTHERS)
