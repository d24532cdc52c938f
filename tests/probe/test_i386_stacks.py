# SPDX-License-Identifier: MIT
"""The calls that led to a probe's hits on i386: gdb's backtrace is the same at the same hit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.gnu import i386_libraries
from tests.support.stack_oracle import SOURCE, Calls, Oracle, gdb_calls
from tests.support.tracer_programs import run

COMPILER, ROOT = "i686-linux-gnu-gcc", Path("/usr/i686-linux-gnu/lib")
OWN = (f"-Wl,--dynamic-linker={ROOT}/ld-linux.so.2", f"-Wl,-rpath,{ROOT}")
HOOKED = ("r deep", "r sized", "r:again sized", "r compared", "r handled")
POINTERS = "-fno-omit-frame-pointer"
VDSO = re.compile(r"linux-gate\.so\.1\+|0xf")
HIGH = 1 << 31
"""Above are libraries and the vDSO, which gdb has no file for."""
RAISED = r"""
#include <signal.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
static volatile int held;
APART int leaf(int n) { held += n; return n * 3; }
APART void handled(int number) { held -= leaf(number); }
APART void told(int number, siginfo_t *info, void *context) { held -= leaf(number); }
APART int raised(int process)
{
        int done;

        __asm__ volatile("int $0x80" : "=a"(done) : "a"(37), "b"(process), "c"(SIGUSR1) : "memory");
        return done + held;
}
int main(void)
{
        struct sigaction action = {.sa_handler = handled};

        sigaction(SIGUSR1, &action, 0);
        held += raised(getpid());
        action.sa_sigaction = told;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGUSR1, &action, 0);
        held += raised(getpid());
        return 0;
}
"""
pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or None in map(shutil.which, (COMPILER, "gdb")),
    reason="needs gcc of i386, and gdb, on x86-64",
)


def _built(folder: Path, flags: str, source: str = SOURCE) -> Path:
    program = folder / "prog"
    (folder / "prog.c").write_text(source)
    own = () if "-static" in flags else (*OWN, *i386_libraries(plus=False))
    command = [COMPILER, *flags.split(), "-pthread", "-w", str(folder / "prog.c"), *own]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def _recorded(program: Path, probes: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The events of each probe; the program prints what it prints without."""
    probed, trace = program.with_suffix(".probed"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", probed, "--force")
    assert done.code == 0, done.err
    env = {"FTPATCH_TRACE": str(trace)}
    outcomes = [run(one, cwd=program.parent, arch="i386", env=env) for one in (program, probed)]
    assert outcomes[0].out == outcomes[1].out and not outcomes[1].status, outcomes
    done = ftpatch("report", trace, "--json")
    assert done.code == 0, done.err
    found: dict[str, list[dict[str, Any]]] = {}
    for row in done.json:
        if "time" in row:
            found.setdefault(row["probe"], []).append(row)
    return found


def _places(program: Path, name: str) -> list[int]:
    """The addresses of a function's instructions where a probe can be, too."""
    words = ["objdump", "-d", f"--disassemble={name}", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    places = [int(at, 16) for at in re.findall(r"^ *([0-9a-f]+):", done.stdout, re.MULTILINE)]
    one = program.with_name("one")
    return [
        at
        for at in places[1:]
        if ftpatch("probe", program, f"p {at:#x}", "-o", one, "--force").code == 0
    ]


def _require_same(oracle: Oracle, row: dict[str, Any], calls: Calls) -> None:
    """Fail unless all of the calls are the same, up to one in the vDSO, whose file there is not:
    a signal's handler returns there, and the system call that raised it was made there."""
    stack = row["stack"]
    kernel = [at for at, text in enumerate(stack) if VDSO.match(text)]
    most = kernel[0] if kernel else None
    oracle.require_same(stack[:most], calls[: most if kernel else None])
    assert row.get("stack_cut", False) == bool(kernel)


@pytest.mark.parametrize(
    "flags", ["-O0", "-O2", "-O2 -no-pie -fno-pie", f"-O1 {POINTERS}", "-O2 -static"]
)
def test_calls_are_those_of_gdb(tmp_path: Path, flags: str) -> None:
    """At a function's entry, at each of its instructions and where it returns; also where return
    addresses are replaced."""
    program = _built(tmp_path, flags)
    oracle = Oracle(program, ROOT)
    (leaf,) = oracle.own["leaf"]
    inside = [*_places(program, "sized"), *_places(program, "handled")]
    base = 0 if "pie" not in flags and "static" not in flags else 0x8048000
    expected = gdb_calls(program, [leaf, *inside], base)
    probes = ["p:entry leaf stack", "r:back leaf stack", *HOOKED]
    events = _recorded(program, [*probes, *(f"p:at_{at:x} {at:#x} stack" for at in inside)])
    assert len(events["entry"]) == len(expected[leaf]) > 10
    for event, calls in zip(events["entry"], expected[leaf], strict=True):
        _require_same(oracle, event, calls)
    for event, calls in zip(events["back"], expected[leaf], strict=True):
        _require_same(oracle, event, calls[1:])
    for at in inside:
        for event, calls in zip(events.get(f"at_{at:x}", []), expected.get(at, []), strict=True):
            _require_same(oracle, event, calls)


@pytest.mark.parametrize("flags", ["-O0", "-O2"])
def test_frame_pointers(tmp_path: Path, flags: str) -> None:
    """The walk finds what gdb does, as far as all code keeps them: up to the library's. main()
    aligns its frame, and has a copy of its return address there, which is replaced."""
    program = _built(tmp_path, f"{flags} {POINTERS}")
    oracle = Oracle(program, ROOT)
    (leaf,) = oracle.own["leaf"]
    expected = gdb_calls(program, [leaf], 0)[leaf]
    probes = [
        "p:l leaf stack:fp",
        "p:few leaf stack(2):fp",
        "r:back leaf stack:fp",
        "r main",
        *HOOKED,
    ]
    events = _recorded(program, probes)
    for at, calls in enumerate(expected):
        known = [row for row, (file, link) in enumerate(calls) if not file and link < HIGH]
        far = next((row for row in range(len(calls)) if row not in known), len(calls))
        most = far + bool(calls[far][0])  # of the library's calls, the first
        oracle.require_same(events["l"][at]["stack"][:most], calls[:most])
        oracle.require_same(events["back"][at]["stack"][: most - 1], calls[1:most])
        oracle.require_same(events["few"][at]["stack"], calls[:2])
        assert events["few"][at]["stack_cut"]


@pytest.mark.parametrize("flags", ["-O0", "-O2", "-O2 -static"])
def test_signals_of_both_forms(tmp_path: Path, flags: str) -> None:
    """With SA_SIGINFO and without: calls go on where the program was interrupted."""
    events = _recorded(_built(tmp_path, flags, RAISED), ["p:l leaf stack", "r:b leaf stack"])
    for name, more in (("l", ["leaf"]), ("b", [])):
        for row, handler in zip(events[name], ("handled", "told"), strict=True):
            calls = [text.partition("+")[0] for text in row["stack"]]
            assert VDSO.match(row["stack"][len(more) + 1]), row
            del calls[len(more) + 1]
            assert calls[: len(more) + 3] == [*more, handler, "raised", "main"]
            assert calls[-1] == "_start" and not row.get("stack_cut")
