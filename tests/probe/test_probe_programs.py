# SPDX-License-Identifier: MIT
"""A program with a return probe on each of its functions does what it did, by every way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.probe_programs import otherwise
from tests.support.tracer_matrix import QUICK, SLOW, runs
from tests.support.tracer_programs import Form, build

SEED = 7
WAYS = {"pad": ("pad", ()), "jump": ("none", ()), "trap": ("none", ("--no-optimize",))}
"""Kind of site that programs are compiled with, and options."""
EARLY = "the dynamic linker runs code of the program before a breakpoint can be caught"
FILTERED = "a filter that does not allow rt_sigreturn() lets no handler of a signal return"
FAILS = {("early.c", "trap"): EARLY, ("sandbox.c", "trap"): FILTERED}
FOREIGN = ("calls.c", "jumps.c", "contexts.c", "nested.c", "throws.cpp", "signals.c", "registers.c")
"""Of those that are run on arm64, too."""


def _cases() -> list[object]:
    rng = random.Random(SEED)
    cases: list[object] = []
    for name in (*QUICK, *SLOW):
        for arch in ("x86_64", "i386", "arm64"):
            if arch == "arm64" and name not in FOREIGN:
                continue
            for way in WAYS:
                link = rng.choice(("pie", "static", "no-pie"))
                level = rng.choice(("-O0", "-O2", "-O3"))
                form = Form(arch, link, level, WAYS[way][0])
                reason = FAILS.get((name, way), "")
                if reason == EARLY and link == "static":
                    reason = ""
                marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
                cases.append(pytest.param(name, form, way, marks=marks, id=f"{name}-{way}-{form}"))
    return cases


@pytest.mark.parametrize(("name", "form", "way"), _cases())
def test_it_does_what_it_did(name: str, form: Form, way: str, tmp_path: Path) -> None:
    program = build(form, name, tmp_path)
    assert not otherwise(program, runs(name, form.arch), form.arch, WAYS[way][1])
