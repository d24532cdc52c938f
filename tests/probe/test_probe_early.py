# SPDX-License-Identifier: MIT
"""Traps in what runs before a program's entry."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.tracer_programs import ARCHES, run

SOURCE = r"""
#include <stdio.h>
static long one(long n) { return n + 1; }
__attribute__((noinline)) static int wanted(void) { __asm__ volatile(""); return 1; }
__attribute__((noinline)) static void *choose(void)
{
	return wanted() ? (void *)one : 0;
}
long chosen(long n) __attribute__((ifunc("choose")));
static long (*held)(long) = chosen; /* R_*_IRELATIVE, in a program without symbols too */
__attribute__((noinline)) long work(long n) { __asm__ volatile(""); return held(n); }
int main(void) { printf("%ld\n", work(3)); return 0; }
"""
REASON = "it may run before the program's entry, where no trap can be caught yet"


@pytest.mark.parametrize("stripped", [False, True], ids=["symbols", "stripped"])
@pytest.mark.parametrize("arch", ["x86_64", "i386", "arm64"])
def test_a_resolver_and_what_it_calls(arch: str, stripped: bool, tmp_path: Path) -> None:
    one = ARCHES[arch]
    if shutil.which(one.gcc) is None:
        pytest.skip(f"{one.gcc} is not installed")
    (tmp_path / "early.c").write_text(SOURCE)
    program, out = tmp_path / "early", tmp_path / "out"
    subprocess.run([one.gcc, "-O1", tmp_path / "early.c", "-o", program], check=True)
    names = ("choose", "wanted", "work")
    listed = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    at = {
        line.split()[2]: int(line.split()[0], 16)
        for line in listed.splitlines()
        if len(line.split()) == 3
    }
    if stripped:
        subprocess.run([f"{one.gcc.removesuffix('gcc')}strip", program], check=True)
    probes = [f"p:{name} {at[name]:#x}" for name in names]
    done = ftpatch("probe", program, *probes, "--no-optimize", "-o", out)
    assert done.code == 2 and done.err.count(REASON) == 2 and not out.exists()
    assert f"choose: {REASON}" in done.err and f"wanted: {REASON}" in done.err
    done = ftpatch("probe", program, *probes, "--no-optimize", "--keep-going", "-o", out)
    assert out.exists()
    trace = tmp_path / "trace"
    ran = run(out, cwd=tmp_path, arch=arch, env={"FTPATCH_TRACE": str(trace)})
    assert (ran.status, ran.out) == (0, b"4\n")
    assert [row["probe"] for row in ftpatch("report", trace, "--json").json if "time" in row] == [
        "work"
    ]


LIBRARY = r"""
#include <stdio.h>
int helper(int n) { return n; }
__attribute__((constructor)) static void first(void) { printf("%d\n", helper(3)); }
"""
INTERPOSING = r"""
#include <stdio.h>
__attribute__((noinline)) static int inner(int n) { __asm__ volatile(""); return n + 1; }
__attribute__((noinline)) int helper(int n) { __asm__ volatile(""); return 2 * inner(n); }
__attribute__((noinline)) int other(int n) { __asm__ volatile(""); return n + 5; }
int main(void) { printf("%d %d\n", helper(1), other(1)); return 0; }
"""


@pytest.mark.parametrize("told", [True, False], ids=["libraries", "library-missing"])
def test_what_a_constructor_of_a_library_calls(told: bool, tmp_path: Path) -> None:
    (tmp_path / "lib.c").write_text(LIBRARY)
    (tmp_path / "main.c").write_text(INTERPOSING)
    library, program, out = tmp_path / "liblib.so", tmp_path / "main", tmp_path / "out"
    subprocess.run(["gcc", "-shared", "-fPIC", tmp_path / "lib.c", "-o", library], check=True)
    words: list[str | Path] = [
        "-O1",
        "-rdynamic",
        tmp_path / "main.c",
        "-o",
        program,
        "-Wl,--no-as-needed",
        library,
    ]
    words += [f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", *words], check=True)
    before = subprocess.run([program], check=True, capture_output=True).stdout
    assert before == b"8\n4 6\n", "the library calls the program's"
    if not told:
        library.rename(tmp_path / "elsewhere")
    probes = ["p inner", "p helper", "p other"]
    done = ftpatch("probe", program, *probes, "--no-optimize", "--keep-going", "-o", out)
    refused = {name for name in ("inner", "helper", "other") if f"p_{name}_0: {REASON}" in done.err}
    # Nobody knows what a library that cannot be read would call.
    assert refused == ({"inner", "helper"} if told else {"inner", "helper", "other"})
    assert out.exists() == told
    if told:
        assert subprocess.run([out], check=True, capture_output=True).stdout == before
    done = ftpatch("probe", program, "p helper", "-o", out, "--force")
    if not told:
        (tmp_path / "elsewhere").rename(library)
    assert done.code == 0, done.err
    assert subprocess.run([out], check=True, capture_output=True).stdout == before
