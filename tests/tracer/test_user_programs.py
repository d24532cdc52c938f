# SPDX-License-Identifier: MIT
"""Programs that are hard on a tracer, with a user's stub that takes registers; and stubs that are
refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import ftpatch
from tests.support.tracer_matrix import QUICK, SLOW, runs
from tests.support.tracer_programs import REGISTERED, SOURCES, Form, build, differences, traced
from tests.support.user_stubs import (
    CALLER,
    EMPTY,
    HEAD,
    RETURN,
    STUBS,
    compiled_program,
    compiled_stub,
)
from tests.tracer.test_tracer_hard import CASES, CHANCE, FORMS
from tests.tracer.test_tracer_stepped import Case


def _hard() -> list[object]:
    """Programs of the tracers' own tests that do something with frames, threads, signals or
    processes."""
    return [
        pytest.param(name, link, arch, id=f"{name}-{link}-{arch}")
        for arch in REGISTERED
        for name in (*QUICK, *SLOW)
        for link in ("pie", "static")
        if name not in ("limits.c", "many.c") and (link == "pie" or name in QUICK)
    ]


@pytest.mark.parametrize(("program", "link", "arch"), _hard())
def test_programs_do_what_they_did(program: str, link: str, arch: str, tmp_path: Path) -> None:
    """Exceptions, jumps, contexts, threads, signals, children; and what keeps.c checks."""
    stub = compiled_stub(arch, STUBS / "keeps.c", tmp_path)
    built = build(Form(arch=arch, link=link), program, tmp_path)
    assert not differences(built, runs(program, arch), [str(stub)], arch=arch)


def _harder() -> list[object]:
    return [
        pytest.param(program, mode, form, id=f"{program}-{mode}-{form}")
        for program, mode, form, reason in CASES
        if not reason and (program, mode) not in CHANCE
    ]


@pytest.mark.parametrize(("program", "mode", "form"), _harder())
def test_programs_that_are_hard(program: str, mode: str, form: str, tmp_path: Path) -> None:
    """As with function_graph: frames that wander, processes that libc does not know of, a clock
    that is given up."""
    stub = compiled_stub("x86_64", STUBS / "keeps.c", tmp_path)
    built = build(FORMS[form], program, tmp_path)
    assert not differences(built, [[mode]], [str(stub)])


STEPPED = [
    Case(step=11),
    Case(handler="jumps", step=29),
    Case(handler="many", times=1, step=67),
    Case(stack="same", step=23),
    Case(arch="i386", step=23),
]


@pytest.mark.parametrize("case", STEPPED, ids=lambda case: str(case).partition("-")[2])
def test_a_signal_at_every_instruction(case: Case, tmp_path: Path) -> None:
    """Of the runtime and of the stub: each call is told of, or counted as missed."""
    stub = compiled_stub(case.arch, STUBS / "keeps.c", tmp_path, "-DCOUNTS")
    own = traced(build(Form(case.arch), "stepped.c", tmp_path), str(stub))
    stepper, out = str(tmp_path / "stepper"), tmp_path / "words"
    subprocess.run(["gcc", "-O2", str(SOURCES / "stepper.c"), "-o", stepper], check=True)
    command = ["sh", "-c", 'exec 9>"$0" "$@"', str(out), stepper, str(case.times), str(case.step)]
    command += [str(own), case.handler, case.stack, str(case.depth), case.where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "no breakpoint of the processor" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    calls, jumps, rounds = map(int, done.stderr.split())
    told, missed, overrun, lost = np.frombuffer(out.read_bytes(), "<u8")[-4:].tolist()
    assert rounds > 10 and missed and not overrun and not lost
    assert abs(told + missed - calls) <= jumps


REFUSED = {
    "both": (
        f"{CALLER}{EMPTY}void ftrace_caller(void);\n"
        '__attribute__((visibility("default"))) void ftrace_caller(void) {}',
        "defines ftrace_caller and ftrace_regs_caller; ftrace_caller goes with ftrace_return alone",
    ),
    "mixed": (
        f"{CALLER}{EMPTY}void ftrace_return(void);\n"
        '__attribute__((visibility("default"))) void ftrace_return(void) {}',
        "ftrace_regs_caller and ftrace_return; ftrace_regs_caller goes with ftrace_regs_return",
    ),
    "no-entry": (RETURN + EMPTY, "defines no ftrace_caller or ftrace_regs_caller"),
    "libc": (
        f"struct fgraph_call kept[9];\n{CALLER}"
        "{ (void)regs; (void)call; __builtin_memset(kept, (int)call->tid, call->depth); }",
        "needs a dynamic linker for memset; define it in the stub",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_stubs_that_are_refused(case: str, tmp_path: Path) -> None:
    text, said = REFUSED[case]
    stub = compiled_stub("x86_64", HEAD + text, tmp_path)
    program = compiled_program("x86_64", tmp_path)
    result = ftpatch("enable", program, "--tracer", stub)
    assert result.code == 2 and said in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "prog.ftpatch").exists()


def test_where_registers_are_not(tmp_path: Path) -> None:
    """Other architectures, processes, libraries and their calls: a line each."""
    stub = compiled_stub("x86_64", HEAD + CALLER + EMPTY, tmp_path)
    program = compiled_program("x86_64", tmp_path)
    for words, said in (
        (("--libcalls",), "--libcalls does not work with"),
        (("--args",), "does not record arguments"),
    ):
        result = ftpatch("enable", program, "--tracer", stub, *words)
        assert result.code == 2 and said in result.err and result.err.count("\n") == 1
    other = compiled_program("arm64", tmp_path, name="other")
    result = ftpatch("enable", other, "--tracer", stub)
    assert result.code == 2 and "the stub is for another architecture" in result.err


@pytest.mark.parametrize("flag", ["-msse2", "-mno-general-regs-only", "-mavx2"])
def test_vector_registers_are_refused_by_the_header(flag: str, tmp_path: Path) -> None:
    source = tmp_path / "own.c"
    source.write_text(HEAD + CALLER + EMPTY)
    told = [word for word in ftpatch("--cflags").out.split() if word != "-mgeneral-regs-only"]
    done = subprocess.run(
        ["gcc", *told, *([flag] if "no-" not in flag else []), source, "-o", tmp_path / "own.elf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode and "compile with -mgeneral-regs-only" in done.stderr
