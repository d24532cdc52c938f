# SPDX-License-Identifier: MIT
"""Programs that are hard on a tracer: frames that are away, processes that libc does not know of,
system calls that are given up, registers that nobody else would keep a value in.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.tracer_matrix import LEFT_OUT
from tests.support.tracer_programs import ARCHES, TRACERS, Form, build, differences, emulator

HOOKS = ("function_graph", "function_profile")
"""Those that replace return addresses; the others change nothing that these programs look at."""
OTHERS = tuple(tracer for tracer in TRACERS if tracer not in HOOKS)
ALONE = ("-fno-optimize-sibling-calls",)
"""Flags that leave tail calls out."""

STALE = (
    "the unwind expression takes the first frame of that slot, of any thread: neither the caller's "
    "own nor the latest"
)
BY_ROUTINE = ("arm",)
"""Where unwinders call a routine in place of an expression, and that looks for the latest."""
SHARED = "two processes with one thread pointer use one struct thread at the same time"
PREEMPTED = (
    "a handler that switches to another stack leaves the tracer in the middle; it goes on later "
    "with what it had read of the ret_stack before"
)
KILLED = "a child's first call makes a file, by system calls that it may have given up"
LOCKED = "mlockall() locks the 200 MB of the region, which are nobody's"
SITE = (
    "the site itself changes x9, and return_to_handler x9 to x17, in which gcc -fipa-ra keeps "
    "values if add() does not"
)
SCARCE = {("arm64", tracer): SITE for tracer in TRACERS}
"""What fails with scarce.c, and not on x86."""
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
"""What concerns all tracers that record; qemu-user takes neither system calls nor memory away."""


def _form(form: str, arch: str) -> Form:
    """The same on another architecture; i386 has no __fentry__ in code for PIE."""
    made = replace(FORMS[form], arch=arch)
    return replace(made, link="no-pie") if arch == "i386" and made.site == "fentry" else made


def _possible(program: str, mode: str, form: str, arch: str, reason: str) -> bool:
    """What depends on the moment is tried on x86_64 alone."""
    if arch == "x86_64":
        return True
    if (program, mode) in CHANCE or (arch, program, mode) in LEFT_OUT:
        return False
    if reason in EVERY and emulator(arch):
        return False
    return ARCHES[arch].fentry or FORMS[form].site != "fentry"


def _case(program: str, mode: str, form: str, tracer: str, arch: str, reason: str) -> object:
    always = (program, mode) not in CHANCE
    marks = [pytest.mark.xfail(strict=always, reason=reason)] if reason else []
    name = f"{program}-{mode}-{form}-{tracer}-{arch}"
    return pytest.param(program, mode, _form(form, arch), tracer, marks=marks, id=name)


def _cases() -> list[object]:
    cases = []
    for arch, (program, mode, form, reason) in itertools.product(ARCHES, CASES):
        if not _possible(program, mode, form, arch, reason):
            continue
        if reason == STALE and arch in BY_ROUTINE:
            reason = ""
        recording = reason in EVERY or program == "sandbox.c"
        for tracer in (*HOOKS, "function") if recording else HOOKS:
            own = SCARCE.get((arch, tracer), "") if program == "scarce.c" else reason
            cases.append(_case(program, mode, form, tracer, arch, own))
    return cases


@pytest.mark.parametrize(("program", "mode", "form", "tracer"), _cases())
def test_it_does_what_it_did(
    program: str, mode: str, form: Form, tracer: str, tmp_path: Path
) -> None:
    built = build(form, program, tmp_path)
    times = 6 if (program, mode) in CHANCE else 1
    assert not differences(built, [[mode]] * times, [tracer], arch=form.arch)


def _harmless() -> list[object]:
    """Each program once, on each architecture."""
    cases = {}
    for arch, (program, mode, _, reason) in itertools.product(ARCHES, CASES):
        form = "bare" if program == "scarce.c" else "O2"
        if reason not in EVERY and _possible(program, mode, form, arch, reason):
            for tracer in OTHERS:
                own = SCARCE.get((arch, tracer), "") if program == "scarce.c" else ""
                case = (program, mode, form, tracer, arch)
                cases[case] = _case(*case, own)
    return list(cases.values())


@pytest.mark.parametrize(("program", "mode", "form", "tracer"), _harmless())
def test_tracers_without_hooks_do_no_harm(
    program: str, mode: str, form: Form, tracer: str, tmp_path: Path
) -> None:
    built = build(form, program, tmp_path)
    assert not differences(built, [[mode]], [tracer], arch=form.arch)
