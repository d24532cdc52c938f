# SPDX-License-Identifier: MIT
"""A traced program does what it did: the same output and the same status, in every form."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.tracer_matrix import FOREIGN, LEFT_OUT, QUICK, SLOW, cases, forms, runs
from tests.support.tracer_programs import Form, build, differences, run


@pytest.mark.parametrize(
    ("name", "form"), [pytest.param(name, form, id=f"{name}-{form}") for name, form in cases()]
)
def test_it_does_what_it_did(name: str, form: Form, tmp_path: Path) -> None:
    program = build(form, name, tmp_path)
    assert not differences(program, runs(name, form.arch), arch=form.arch)


@pytest.mark.parametrize(("arch", "name", "mode"), LEFT_OUT, ids="-".join)
def test_what_is_left_out_does_not_run(arch: str, name: str, mode: str, tmp_path: Path) -> None:
    """Nor would it without a tracer."""
    done = run(build(Form(arch), name, tmp_path), [mode], cwd=tmp_path, arch=arch)
    crashed = done.status == -signal.SIGSEGV
    assert crashed or b".c:" in done.out or b"/sh: " in done.err, f"{done} {done.err!r}"


@pytest.mark.parametrize("arch", FOREIGN)
def test_every_pair_occurs(arch: str) -> None:
    """Of a program, a link, a level and a kind of site, as far as the compiler has it."""
    have = [(name, form) for name, form in cases() if form in forms(arch)]
    wanted = [(name, form) for name in (*QUICK, *SLOW) for form in forms(arch)]

    def pairs(of: list[tuple[str, Form]]) -> set[tuple[str, str]]:
        words = [(name, form.link, form.level, form.site) for name, form in of]
        return {(a, b) for word in words for a in word for b in word if a < b}

    assert pairs(have) == pairs(wanted)


@pytest.mark.parametrize(
    "options", [("--max-stack", "8"), ("--max-stack", "65536"), ("--size", "64K")]
)
def test_limits_of_the_tracer_are_not_the_programs(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("calls.c", "jumps.c", "contexts.c", "threads.c", "throws.cpp"):
        program = build(Form(), name, tmp_path)
        assert not differences(program, runs(name, "x86_64"), options=options), name
