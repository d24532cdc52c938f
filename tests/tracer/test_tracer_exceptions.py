# SPDX-License-Identifier: MIT
"""Exceptions, and others that look who called, pass through traced calls on i386, arm,
arm64, riscv64 and ppc64le."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tracer_ports import FORMS, Form, Trace, build, run
from tests.support.tracer_programs import traced

HOOKING = ("function_graph", "function_profile")
MORE = [Form("arm64", "pie", "-O2", ("-mbranch-protection=standard",), "max")]


@pytest.mark.parametrize("form", FORMS + MORE, ids=str)
def test_exceptions(form: Form, tmp_path: Path) -> None:
    program = build(form, "ports.cpp", tmp_path)
    expected = run(form, program)
    for tracer in HOOKING:
        file = tmp_path / f"{tracer}.trace"
        assert run(form, traced(program, tracer), file) == expected, tracer
        Trace.of(file, program).whole()


@pytest.mark.parametrize("form", FORMS[1::2], ids=str)
@pytest.mark.parametrize("name", ["unwind.c", "threads.c"])
def test_who_called(name: str, form: Form, tmp_path: Path) -> None:
    """By backtrace() in calls, handlers and coroutines; by threads that are cancelled anywhere,
    in the tracer too."""
    program = build(form, name, tmp_path)
    target = traced(program, "function_graph")
    assert run(form, target, tmp_path / "trace") == run(form, program)
