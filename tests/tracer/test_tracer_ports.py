# SPDX-License-Identifier: MIT
"""Tracers on other architectures than x86-64: programs do what they did, and traces say what they
do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_ports import (
    ENTRY_ARGS,
    EXIT_VALUE,
    FORMS,
    PID,
    THREADS,
    TRACERS,
    Form,
    Trace,
    Tree,
    build,
    run,
)
from tests.support.tracer_programs import traced

every_form = pytest.mark.parametrize("form", FORMS, ids=str)
SEEN = 301
"""Threads of the program."""
LEAF: Tree = ("leaf", [])
BRANCH: Tree = ("branch", [])
for _ in range(3):
    BRANCH = ("branch", [BRANCH, LEAF])
TREE: Tree = ("tree", [BRANCH, LEAF])
GUARDED = ("-mbranch-protection=standard",)


@every_form
def test_it_does_what_it_did(form: Form, tmp_path: Path) -> None:
    program = build(form, "ports.c", tmp_path)
    expected = run(form, program)
    assert expected[1] == 3
    for tracer in TRACERS:
        target, file = traced(program, tracer), tmp_path / f"{tracer}.trace"
        assert run(form, target, file) == expected, tracer
        if tracer == "nop":
            assert not file.exists()
            continue
        trace = Trace.of(file, program)
        trace.whole()
        assert trace.number(THREADS) == SEEN
        if tracer != "function_profile":
            assert len({tid for tid, _ in trace.chunks()}) == SEEN
        if tracer == "function_graph":
            assert trace.tree(trace.number(PID), "tree") == TREE


@every_form
def test_undo_gives_it_back(form: Form, tmp_path: Path) -> None:
    program = build(form, "ports.c", tmp_path)
    target = traced(program, "function_graph")
    assert target.read_bytes() != program.read_bytes()
    assert ftpatch("undo", target).code == 0
    assert target.read_bytes() == program.read_bytes()


@pytest.mark.parametrize("form", FORMS[::2], ids=str)
def test_arguments_and_values(form: Form, tmp_path: Path) -> None:
    program = build(form, "ports.c", tmp_path)
    target, file = traced(program, "function_graph", "--args"), tmp_path / "trace"
    assert run(form, target, file) == run(form, program)
    trace = Trace.of(file, program)
    trace.whole()
    thread = trace.number(PID)
    assert trace.tree(thread, "tree") == TREE
    events = [
        (kind, words) for kind, func, words in trace.events(thread) if trace.name(func) == "leaf"
    ]
    one = 1 << (32 if form.arch in ("i386", "arm") else 64)
    assert [words[:2] for kind, words in events if kind == ENTRY_ARGS] == [
        *([n, one - 1] for n in (1, 2, 3)),
        [7, 8],
    ]
    assert [words for kind, words in events if kind == EXIT_VALUE] == [[99], [199], [299], [708]]


@pytest.mark.parametrize("link", ["static", "pie"])
def test_signed_return_addresses(link: str, tmp_path: Path) -> None:
    """By a processor that has pointer authentication."""
    form = Form("arm64", link, "-O2", GUARDED, "max")
    program = build(form, "ports.c", tmp_path)
    file = tmp_path / "trace"
    assert run(form, traced(program, "function_graph"), file) == run(form, program)
    Trace.of(file, program).whole()


def test_branch_targets(tmp_path: Path) -> None:
    """All of the program, and with it the stub, is guarded: no branch goes where no BTI is."""
    flags = ("-nostdlib", "-march=armv8.5-a", "-Wl,-z,force-bti")
    form = Form("arm64", "static", "-O2", GUARDED, "max")
    program = build(form, "guarded.c", tmp_path, *flags)
    assert run(form, program) == ("", 55)
    for tracer in TRACERS:
        file = tmp_path / f"{tracer}.trace"
        assert run(form, traced(program, tracer), file) == ("", 55)
        if tracer != "nop":
            Trace.of(file, program).whole()


@pytest.mark.parametrize("link", ["static", "no-pie"])
def test_static_chains_beside_fentry(link: str, tmp_path: Path) -> None:
    """gcc keeps ecx on the stack around a nested function's call of __fentry__."""
    form = Form("i386", link, "-O2", ("-pg", "-mfentry", "-mrecord-mcount"))
    fentry = str(Path(__file__).parent.parent / "programs" / "fentry.S")
    program = build(form, "nested.c", tmp_path, fentry, "-Wl,-z,execstack")
    for tracer in TRACERS:
        assert run(form, traced(program, tracer), tmp_path / tracer) == run(form, program), tracer
