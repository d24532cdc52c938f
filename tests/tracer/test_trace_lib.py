# SPDX-License-Identifier: MIT
"""``ftpatch trace --lib``: calls of a program and of its libraries, in one graph."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.library_programs import FORMS, PAD, Form, Traced, build, compiled, plain, trace

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
Calls = list[tuple[int, str]]
AGAIN: Calls = [(0, "again"), (1, "through"), (2, "own"), (2, "leaf"), (1, "tail"), (2, "own")]
LIBRARY = {"begin", "through", "tail", "deep", "leap", "leaf", "was_started", "end"}


def _in(depth: int, calls: Calls) -> Calls:
    return [(depth + level, name) for level, name in calls]


BEFORE: Calls = [(0, "begin"), (1, "leaf")]
TREE: Calls = [
    (0, "main"),
    (1, "through"),
    *_in(2, AGAIN),
    (2, "leaf"),
    (1, "was_started"),
    *((level, "deep") for level in range(1, 5)),
    *_in(5, AGAIN),
    *((1, "leap"), (2, "leaf")) * 2,
    (1, "leaf"),
    (0, "end"),
    (1, "leaf"),
]


def _same(traced: Traced, expected: tuple[int, str]) -> None:
    assert (traced.code, traced.out, traced.err) == (*expected, "")


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_tree_is_the_sources(form: Form, tmp_path: Path) -> None:
    """Through callbacks, tail calls, recursion and longjmp; a constructor of the library comes
    before the program where the linker can be hooked."""
    program = build(tmp_path, form)
    expected = plain(program)
    tree = [*BEFORE, *TREE] if form.arch == "x86_64" else TREE
    assert expected[0] == 7
    for options in ((), ("--args",)):
        traced = trace(program, *options)
        _same(traced, expected)
        assert traced.calls == tree
        for event in traced.events:
            assert ("library" in event) == (event["function"] in LIBRARY), event
    entry, leave = traced.events[-3], traced.events[-2]
    assert entry["function"] == leave["function"] == "leaf"
    assert (entry["args"][0], leave["value"]) == (2, 3)
    traced = trace(program, "--tracer", "function")
    _same(traced, expected)
    assert [name for _, name in traced.calls] == [name for _, name in tree]
    # A tail call's parent is its caller's.
    for event in traced.events:
        if event["function"] in ("again", "was_started", "leap", "tail"):
            assert event["parent"] in ("main", "through", "deep", "again"), event
    result = trace(program, "--tracer", "function_profile", "--format", "profile")
    assert result.code == 7 and result.out.startswith(expected[1])
    hits = {line.split()[-1]: int(line.split()[0]) for line in result.out.splitlines()[6:]}
    assert hits == {name: [n for _, n in tree].count(name) for _, name in tree}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_exceptions_threads_and_children(form: Form, tmp_path: Path) -> None:
    program = build(tmp_path, form, suffix="cpp")
    expected = plain(program)
    assert expected[0] == 41 and "caught thrown" in expected[1]
    for tracer in ("function_graph", "function_profile", "function"):
        traced = trace(program, "--tracer", tracer)
        assert (traced.code, traced.out) == expected, tracer
        assert "not traced" not in traced.err
        if tracer == "function_profile":
            continue
        named = {event["function"] for event in traced.events}
        assert named >= {"through", "thrower", "catcher", "count", "leaf"}
        counted = [event for event in traced.events if event["function"] == "count"]
        entered = [event for event in counted if event["event"] == "entry"]
        assert len(entered) == sum(50 * i + 1 for i in range(8)) + 5
        assert len({event["tid"] for event in entered}) == 9
        (child,) = {event["pid"] for event in entered[-5:]}
        assert child != traced.events[0]["pid"]


def test_fentry(tmp_path: Path) -> None:
    flags = ("-pg", "-mfentry", "-mrecord-mcount")
    program = build(tmp_path, suffix="c", sites=(PAD, " ".join(flags)))
    _same(trace(program), plain(program))


def test_a_program_without_sites(tmp_path: Path) -> None:
    for level in ("-O0", "-O2"):
        program = build(tmp_path, Form(level=level), sites=("", PAD))
        for tracer in ("function_graph", "function"):
            traced = trace(program, "--tracer", tracer)
            _same(traced, plain(program))
            calls = [name for _, name in [*BEFORE, *TREE] if name in LIBRARY]
            assert [name for _, name in traced.calls] == calls


def test_only_what_is_chosen(tmp_path: Path) -> None:
    program = build(tmp_path)
    expected = plain(program)
    for options, names in (
        (("-f", "leaf"), {"leaf"}),
        (("-f", "main", "-f", "deep"), {"main", "deep"}),
        (
            ("-n", "le*", "-n", "main"),
            {"begin", "again", "through", "own", "tail", "was_started", "deep", "end"},
        ),
        (("-f", "main"), {"main"}),
    ):
        traced = trace(program, *options)
        _same(traced, expected)
        assert {name for _, name in traced.calls} == names
    report = ftpatch("report", "--json", "-f", "main", tmp_path / "kept")
    assert {row["function"] for row in report.json} == {"main"}


def test_a_library_that_is_opened_later(tmp_path: Path) -> None:
    """It calls one that the program is linked with."""
    build(tmp_path)
    later = tmp_path / "later.c"
    later.write_text('#include "shared.h"\nint later(int n) { return leaf(n) + 1; }\n')
    shared = str(tmp_path / "libshared.so.1")
    compiled(tmp_path, later, "libshared_later.so", "-shared", "-fPIC", PAD, shared)
    main = tmp_path / "opens.c"
    main.write_text(
        '#include "shared.h"\n#include <dlfcn.h>\n#include <stdio.h>\nint main(int c, char **v) {\n'
        f'void *p = dlopen("{tmp_path}/libshared_later.so", RTLD_NOW);\n'
        'printf("%d\\n", ((int (*)(int))dlsym(p, "later"))(leaf(1))); return 0; }\n'
    )
    program = compiled(tmp_path, main, "opens", PAD, shared, "-Wl,-rpath,$ORIGIN")
    traced = trace(program)
    _same(traced, (0, "4\n"))
    inside = [(1, "leaf"), (1, "later"), (2, "leaf")]
    assert traced.calls == [*BEFORE, (0, "main"), *inside, (0, "end"), (1, "leaf")]


def test_threads_of_constructors(tmp_path: Path) -> None:
    """They call before the program begins, and while it does, traced or not."""
    source = tmp_path / "early.c"
    source.write_text(
        "#include <pthread.h>\n#include <unistd.h>\nint stop, calls;\n"
        "void spin(void) { calls++; }\n"
        # Slowly, or there is no room left in the trace before main() is called.
        "static void *run(void *p) { while (!__atomic_load_n(&stop, 5)) { spin(); "
        "if (calls % 16 == 0) usleep(1000); } return p; }\n"
        "static pthread_t t;\nint done(void) { while (!__atomic_load_n(&calls, 5)) ; "
        "__atomic_store_n(&stop, 1, 5); "
        "pthread_join(t, 0); return calls > 0; }\n"
        "__attribute__((constructor)) static void begin(void) { pthread_create(&t, 0, run, 0); }\n"
    )
    main = tmp_path / "main.c"
    main.write_text("int done(void); int main(void) { return done() + 4; }\n")
    soname = "-Wl,-soname,libshared.so.1"
    library = compiled(tmp_path, source, "libshared.so.1", "-shared", "-fPIC", PAD, soname)
    program = compiled(tmp_path, main, "prog", PAD, str(library), "-Wl,-rpath,$ORIGIN")
    for _ in range(5):
        traced = trace(program, "-f", "done", "-f", "main", "-f", "spin", "--size", "1M")
        assert traced.code == 5 and (0, "main") in traced.calls


def test_a_debugger_sees_the_callers_from_anywhere(tmp_path: Path) -> None:
    """From each instruction of what is laid into the library, on the way in."""
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    build(tmp_path)
    program = compiled(
        tmp_path,
        "main.c",
        "prog",
        "-g",
        PAD,
        str(tmp_path / "libshared.so.1"),
        "-Wl,-rpath,$ORIGIN",
    )
    steps = "set $i = 0\nwhile $i < 14\nstepi\nbt\nset $i = $i + 1\nend\n"
    commands = tmp_path / "commands"
    commands.write_text(f"set breakpoint pending on\nbreak *was_started\nrun\n{steps}")
    seen: list[str] = []

    def run(patched: Path, words: list[str], environment: dict[str, str], *_: object) -> int:
        debugger = ["gdb", "-batch", "-x", str(commands), str(patched)]
        done = subprocess.run(
            debugger, env=environment, capture_output=True, text=True, check=False
        )
        seen.append(done.stdout)
        return done.returncode

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ftpatch.tracer.run.execute", run)
        ftpatch("trace", "--lib", "libshared*", "-o", tmp_path / "kept", program)
    (text,) = seen
    stacks = text.split("#0 ")[1:]
    assert len(stacks) == 14, text
    assert all(" in main" in stack for stack in stacks), text
