# SPDX-License-Identifier: MIT
"""``trace --follow-exec --lib``: libraries of programs that a traced one starts, linked or
opened later. The libraries count their calls themselves."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, Result, child_env, ftpatch_process
from tests.support.trace_file_programs import native

pytestmark = native
HERE = Path(__file__).parent
PAD = "-fpatchable-function-entry=5"
LIBRARY = r"""
#include <stdio.h>
int calls;
__attribute__((noinline)) int NAME(int n) { calls++; __asm__ volatile(""); return n + 1; }
__attribute__((constructor)) static void NAME_begun(void) { NAME(0); calls++; }
__attribute__((destructor)) static void NAME_gone(void)
{
    NAME(0);
    calls++;
    fprintf(stderr, "counted %d\n", calls);
}
int entry(int n) { int sum = 0; calls++; for (int i = 0; i < n; i++) sum += NAME(i); return sum; }
"""
THROWS = r"""
#include <stdexcept>
extern "C" int calls;
int calls;
__attribute__((noinline)) static int risk(int n)
{
    calls++;
    if (n % 2)
        throw std::runtime_error("odd");
    return n;
}
extern "C" int entry(int n)
{
    calls++;
    try {
        return risk(n);
    } catch (const std::exception &) {
        return -1;
    }
}
"""
ENTRY = "int entry(int); int main(int c, char **v) { return 0 * v[0][0] + entry(c) + 7; }\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries; programs that start others (`pads`, `bare`), that open libraries (`opens`), that
    are linked with one (`linked`, `throws`), or are static."""
    folder = tmp_path_factory.mktemp("following")

    def gcc(compiler: str, *words: str) -> None:
        subprocess.run([compiler, "-O1", "-w", *words], cwd=folder, check=True)

    for name in ("leaf", "twig"):
        (folder / f"{name}.c").write_text(LIBRARY.replace("NAME", name))
        gcc("gcc", PAD, "-shared", "-fPIC", f"{name}.c", "-o", f"lib{name}.so")
    (folder / "throwing.cc").write_text(THROWS)
    gcc("g++", PAD, "-shared", "-fPIC", "throwing.cc", "-o", "libthrowing.so")
    (folder / "entry.c").write_text(ENTRY)
    log = f'-DLOG="{folder}/log"'
    for name, flags in {"pads": [PAD], "bare": [], "static": [PAD, "-static"]}.items():
        gcc("gcc", "-pthread", log, *flags, str(HERE / "starting.c"), "-o", name)
    gcc("gcc", "-pthread", str(HERE / "opening.c"), "-o", "opens")
    gcc("gcc", PAD, "entry.c", "-o", "linked", "./libleaf.so")
    gcc("gcc", "entry.c", "-o", "throws", "./libthrowing.so")
    return folder


def _trace(folder: Path, text: str, *options: str) -> tuple[Result, str, int]:
    """What a traced program and those that it starts have done, what is said without ftpatch, and
    what the libraries have counted."""
    programs = ("pads", "bare", "static", "opens", "linked", "throws")
    words = [str(folder / word) if word in programs else word for word in text.split()]
    words = [word.replace("HERE", str(folder)) for word in words]
    alone = subprocess.run(
        words,
        cwd=folder,
        env=child_env(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    options = options or ("--lib", "lib*.so", "--tracer", "function")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = ftpatch_process(
            "trace", "--follow-exec", *options, "--format", "json", "--", *words
        )
    assert found.code == alone.returncode
    assert found.out.startswith(alone.stdout)
    counted = [
        re.findall(r"^counted (\d+)$", one, re.MULTILINE) for one in (found.err, alone.stderr)
    ]
    assert sorted(counted[0]) == sorted(counted[1])
    err = re.sub(
        r"^counted .*\n|^.*: the program did not end by exit.*\n", "", found.err, flags=re.M
    )
    return Result(found.code, found.out, err), alone.stdout, sum(map(int, counted[0]))


def _calls(found: Result) -> Counter[str]:
    return Counter(re.findall(r'"function": ?"(\w+)"', found.out))


WAYS = ("fork", "vfork", "spawn", "empty", "exec", "thread")
LIBRARIES = (
    "linked",
    "opens once HERE/libleaf.so 3",
    "opens thread ./libtwig.so 2",
    "opens moves HERE/libleaf.so 2 HERE/libtwig.so",
    "opens two HERE/libleaf.so 0",
    "opens fork HERE/libleaf.so 2 HERE/libtwig.so",
)
FUNCTIONS = ("leaf", "leaf_begun", "leaf_gone", "twig", "twig_begun", "twig_gone", "entry")


@pytest.mark.parametrize("starter", ["pads", "bare"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", LIBRARIES, ids=lambda text: "-".join(text.split()[:2]))
def test_all_calls_of_all_libraries(what: str, way: str, starter: str, folder: Path) -> None:
    found, _, counted = _trace(folder, f"{starter} {way} {what}")
    assert found.err == ""
    calls = _calls(found)
    # A child goes on from what its parent has counted: begun, leaf, entry, leaf.
    copied = 4 if what.startswith("opens fork") else 0
    assert sum(calls[name] for name in FUNCTIONS) == counted - copied > 0
    assert calls["work"] == (0 if starter == "bare" else 3 + (way in ("fork", "exec", "thread")))


@pytest.mark.parametrize("tracer", ["function_graph", "function_profile"])
def test_other_tracers(tracer: str, folder: Path) -> None:
    words = (f"{folder}/pads", "spawn", f"{folder}/linked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        found = ftpatch_process(
            "trace", "--follow-exec", "--lib", "libleaf*", "--tracer", tracer, *words
        )
    assert found.code == 8 and "not traced" not in found.err
    if tracer == "function_profile":
        assert re.search(r"^ +3 .* leaf$", found.out, re.MULTILINE)
    else:
        tree = re.findall(r"(main|entry|leaf|leaf_begun|leaf_gone)\(\)", found.out)
        assert tree == ["leaf_begun", "leaf", "main", "entry", "leaf", "leaf_gone", "leaf"]


@pytest.mark.parametrize("what", ["throws", "opens once ./libthrowing.so 3"])
def test_exceptions_pass(what: str, folder: Path) -> None:
    """The unwinder is there at the start, or comes with the library."""
    options = ("--lib", "libthrowing*", "-f", "risk", "-f", "entry")
    found, said, _ = _trace(folder, f"pads vfork {what}", *options)
    assert found.err == ""
    entries = Counter(re.findall(r'"event": ?"entry".*"function": ?"(\w+)"', found.out))
    times = 1 if what == "throws" else said.count(" calls\n")
    assert entries["entry"] == times
    assert found.out.count("risk") >= times > 0


def test_a_glob_of_no_program_is_named(folder: Path) -> None:
    """One that holds for any of them is not, whichever that is."""
    options = ("--lib", "libleaf*", "--lib", "libtwig*", "--tracer", "function", "-f", "leaf")
    found, _, _ = _trace(folder, "pads spawn linked", *options)
    assert found.err.count("\n") == 1
    assert "--lib 'libtwig*' matches no library of any program" in found.err
    assert _calls(found)["leaf"] == 3
    found, _, _ = _trace(folder, "static spawn opens once ./libtwig.so 1", *options)
    assert "--lib 'libleaf*' matches no library of any program" in found.err
    assert "filter 'leaf' matches no function of any program" in found.err
    found, _, _ = _trace(folder, "linked", *options[:2], "-f", "twig")
    assert "filter 'twig' matches no function of any program" in found.err


def test_programs_of_a_script(folder: Path) -> None:
    script = folder / "script"
    script.write_text(f"#!/bin/sh\n{folder}/linked\n{folder}/opens once {folder}/libtwig.so 1\n")
    script.chmod(0o755)
    found, _, _ = _trace(folder, "/bin/sh HERE/script")
    calls = _calls(found)
    assert (found.err, calls["leaf"], calls["twig"]) == ("", 3, 5)
