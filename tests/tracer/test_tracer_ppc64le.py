# SPDX-License-Identifier: MIT
"""Tracers on ppc64le: r2 is the module's whose code runs, also where an exception goes on; pads
that gcc leaves in front of a global entry; addresses relative to pc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import ARCHES, emulator, traced

ARCH = "ppc64le"
TRACERS = ("function", "function_graph", "function_profile", "nop")
LIBRARY = r"""
#include <cstdio>
extern "C" int counted;
int counted = 100;
struct Cleanup { int n; ~Cleanup() { std::printf("cleanup %d of %d\n", n, ++counted); } };
__attribute__((noipa)) extern "C" int through(int (*call)(int), int n)
{
	Cleanup cleanup{n};
	return call(n) + counted;
}
"""
PROGRAM = r"""
#include <cstdio>
#include <stdexcept>
extern "C" int through(int (*call)(int), int n);
static int own = 7;
__attribute__((noipa)) int thrower(int n)
{
	if (n > 2)
		throw std::runtime_error("thrown");
	return n + own;
}
__attribute__((noipa)) int deeper(int n)
{
    return n > 4 ? through(thrower, n) : thrower(n) + own++;
}
__attribute__((noipa)) int caught(int n)
{
	try {
		return through(deeper, n) + own;
	} catch (std::exception &what) {
		std::printf("%s %d\n", what.what(), own);
		return -n;
	}
}
int main()
{
	for (int n = 0; n < 7; n++)
		std::printf("%d\n", caught(n));
	return own;
}
"""
POINTED = r"""
#include <stdio.h>
static int own = 3;
__attribute__((noipa)) int pointed(int n) { return n + own++; }
int (*volatile call)(int) = pointed;
int main(void) { return printf("%d %d\n", call(1), call(2)) != 4; }
"""


def _compiler(plus: bool) -> str:
    name = ARCHES[ARCH].gxx if plus else ARCHES[ARCH].gcc
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def _run(program: Path, folder: Path, trace: Path | None = None, cpu: str = "") -> tuple[str, int]:
    words = ["-E", f"LD_LIBRARY_PATH={folder}", "-E", f"FTPATCH_TRACE={trace or '/nowhere'}"]
    done = subprocess.run(
        [*emulator(ARCH), *(["-cpu", cpu] if cpu else []), *words, str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.returncode


@pytest.mark.parametrize("link", ["-pie", "-no-pie"])
def test_exceptions_between_modules(link: str, tmp_path: Path) -> None:
    """From the program through a library's frame, whose destructor needs r2 of the library, to the
    program again."""
    compiler = [_compiler(plus=True), "-O2", *ARCHES[ARCH].flags]
    (tmp_path / "library.cpp").write_text(LIBRARY)
    (tmp_path / "program.cpp").write_text(PROGRAM)
    library, program = tmp_path / "libthrough.so", tmp_path / "program"
    own: list[str | Path] = ["-shared", "-fPIC", tmp_path / "library.cpp", "-o", library]
    subprocess.run([*compiler, *own], check=True)
    flags = [ARCHES[ARCH].pad, link, "-fPIE" if link == "-pie" else "-fno-pie"]
    sources: list[str | Path] = [tmp_path / "program.cpp", library, "-o", program]
    subprocess.run([*compiler, *flags, *sources], check=True)
    expected = _run(program, tmp_path)
    assert expected[0].count("cleanup") == 9 and expected[0].count("thrown") == 4
    for tracer in TRACERS:
        target = traced(program, tracer)
        assert _run(target, tmp_path, tmp_path / f"{tracer}.trace") == expected, tracer


def test_pads_in_front_of_a_global_entry(tmp_path: Path) -> None:
    """As gcc 12 has them: r12 is the address of the function until its first instructions make r2
    of it."""
    (tmp_path / "pointed.c").write_text(POINTED)
    program = tmp_path / "pointed"
    flags = ["-O2", ARCHES[ARCH].pad, "-no-pie", "-fno-pie"]
    words: list[str | Path] = [_compiler(plus=False), *flags, tmp_path / "pointed.c", "-o", program]
    subprocess.run(words, check=True)
    expected = _run(program, tmp_path)
    assert expected == ("4 6\n", 0)
    for tracer in TRACERS:
        target = traced(program, tracer)
        assert _run(target, tmp_path, tmp_path / f"{tracer}.trace") == expected, tracer
    said = ftpatch("report", tmp_path / "function.trace").out
    assert said.count(": pointed <-main") == 2


@pytest.mark.parametrize("link", ["-pie", "-no-pie"])
def test_addresses_relative_to_pc(link: str, tmp_path: Path) -> None:
    """Functions of POWER10 have no r2 of their own, and need not keep it."""
    (tmp_path / "pointed.c").write_text(POINTED)
    program = tmp_path / "pointed"
    flags = ["-O2", "-mcpu=power10", ARCHES[ARCH].pad, link]
    flags.append("-fPIE" if link == "-pie" else "-fno-pie")
    words: list[str | Path] = [_compiler(plus=False), *flags, tmp_path / "pointed.c", "-o", program]
    subprocess.run(words, check=True)
    expected = _run(program, tmp_path, cpu="power10")
    assert expected == ("4 6\n", 0)
    for tracer in TRACERS:
        target, trace = traced(program, tracer), tmp_path / f"{tracer}.trace"
        assert _run(target, tmp_path, trace, "power10") == expected, tracer
