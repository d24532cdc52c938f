# SPDX-License-Identifier: MIT
"""Programs of tests/programs as libraries, whose main() a program without sites calls: they do what
they did."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ftpatch.trace.header import open_trace
from tests.support.command import PATIENCE, ftpatch
from tests.support.gnu import i386_libraries
from tests.support.library_programs import PAD, PREFIX, Form
from tests.support.tracer_programs import SOURCES

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
ONCE: tuple[tuple[str, ...], ...] = ((),)
RUNS: dict[str, tuple[tuple[str, ...], ...]] = {
    "calls.c": ONCE,
    "jumps.c": ONCE,
    "contexts.c": ONCE,
    "nested.c": ONCE,
    "unwind.c": ONCE,
    "threads.c": ONCE,
    "signals.c": ONCE,
    "throws.cpp": ONCE,
    "forks.c": ONCE,
    "processes.c": ONCE,
    "ends.cpp": ((), ("uncaught",), ("noexcept",), ("terminate",)),
    "exits.c": (("",), ("exit",), ("_exit",), ("abort",), ("kill",), ("trap",), ("thread",)),
    "ports.c": ONCE,
    "ports.cpp": ONCE,
}
"""Program: arguments of its runs."""
WRAPPER = (
    "int library_main(int, char **);\nint main(int c, char **v) { return library_main(c, v); }\n"
)
TRACERS = (("function_graph",), ("function",), ("function_profile",), ("function_graph", "--args"))
SIZE = "16M"


def _library(name: str, form: Form, folder: Path) -> Path:
    """The program around the library."""
    prefix = PREFIX[form.arch]
    compiler = f"{prefix}{'g++' if name.endswith('cpp') else 'gcc'}"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    part, library = folder / "part.o", folder / "libprogram.so.1"
    source = folder / "wrapper.c"
    source.write_text(WRAPPER)
    common = [compiler, form.level, "-w", "-pthread", "-Wl,-z,execstack"]
    words = [*common, "-fPIC", PAD, "-c", str(SOURCES / name), "-o", str(part)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((s for s in done.stderr.splitlines() if "error" in s), "")
        pytest.skip(reason or f"gcc ended with {done.returncode}")
    subprocess.run(
        [f"{prefix}objcopy", "--redefine-sym", "main=library_main", str(part)], check=True
    )
    soname = "-Wl,-soname,libprogram.so.1"
    subprocess.run([*common, "-shared", soname, str(part), "-o", str(library)], check=True)
    flags = [str(library), f"-Wl,-rpath,{folder}"]
    if form.arch == "i386":
        root = Path("/usr/i686-linux-gnu/lib")
        flags += [f"-Wl,-rpath,{root}", f"-Wl,--dynamic-linker={root}/ld-linux.so.2"]
        flags += i386_libraries(plus=name.endswith("cpp"))
    program = folder / "prog"
    common[0] = f"{prefix}gcc"
    subprocess.run([*common, str(source), *flags, "-o", str(program)], check=True)
    return program


def _run(program: Path, args: tuple[str, ...], environment: dict[str, str]) -> tuple[int, bytes]:
    done = subprocess.run(
        [str(program), *args],
        executable=program,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        cwd=program.parent,
    )
    return done.returncode, done.stdout


def _cases() -> list[object]:
    rng, cases = random.Random(3), list[object]()
    for arch in PREFIX:
        for name in RUNS:
            form = Form(arch, "pie", rng.choice(("-O0", "-O2", "-O3")))
            cases.append(pytest.param(name, form, id=f"{name}-{form}"))
    return cases


@pytest.mark.parametrize(("name", "form"), _cases())
def test_it_does_what_it_did(name: str, form: Form, tmp_path: Path) -> None:
    program = _library(name, form, tmp_path)
    expected = [_run(program, args, dict(os.environ)) for args in RUNS[name]]
    assert all(b".c" not in out for _, out in expected), expected
    for tracer, *options in TRACERS:
        seen: list[tuple[int, bytes]] = []

        def run(
            patched: Path,
            words: list[str],
            environment: dict[str, str],
            *_: object,
            seen: list[tuple[int, bytes]] = seen,
        ) -> int:
            place = tmp_path / "traced"
            shutil.copy(patched, place)
            for args in RUNS[name]:
                seen.append(_run(place, args, {**environment, "FTPATCH_TRACE_SIZE": SIZE}))
            fd, header = open_trace(Path(environment["FTPATCH_TRACE"]))
            os.close(fd)
            assert [one.path for one in header.libraries] == [str(tmp_path / "libprogram.so.1")]
            assert header.taken
            return 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ftpatch.tracer.run.execute", run)
            result = ftpatch("trace", "--lib", "libprogram*", "--tracer", tracer, *options, program)
        assert "not traced" not in result.err, result
        assert seen == expected, (tracer, *options)
