# SPDX-License-Identifier: MIT
"""What returns twice for a call is known by its code where there are no names: of glibc and musl,
in static programs. Their symbols are the oracle."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch.returns_twice import returns_twice
from ftpatch.image import open_image
from ftpatch.names.functions import read_functions
from tests.support.command import ftpatch
from tests.support.tracer_programs import run

TWICE = {"setjmp", "_setjmp", "__sigsetjmp", "getcontext", "vfork"}
NOT = {"swapcontext", "longjmp", "siglongjmp", "__clone", "clone", "fork", "setcontext"}
SOURCE = """
#define _GNU_SOURCE
#include <pthread.h>
#include <regex.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>
#ifdef __GLIBC__
#include <netdb.h>
#include <ucontext.h>
#undef setjmp
extern int setjmp(jmp_buf);
extern int _setjmp(jmp_buf);
ucontext_t a, b;
#endif
jmp_buf one; sigjmp_buf two; regex_t reg; pthread_t thread;
static int times;
static void leaves(int n) { longjmp(one, n); }
int main(int argc, char **argv)
{
	int n;

	if (argc > 1) {
		regcomp(&reg, "a", 0), wprintf(L"%d", 1), system("x"), qsort(argv, 1, 8, (void *)main);
		pthread_create(&thread, 0, (void *)main, 0), fork();
#ifdef __GLIBC__
		getaddrinfo(0, 0, 0, 0), getcontext(&a), swapcontext(&a, &b), setjmp(one);
#endif
		setjmp(one), sigsetjmp(two, 1), vfork(), siglongjmp(two, 1);
	}
	n = _setjmp(one);
	printf("%d\\n", n);
	if (n < 3)
		leaves(n + 1);
	return 0;
}
"""


def _static(compiler: str, folder: Path) -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (folder / "twice.c").write_text(SOURCE)
    program = folder / "twice"
    command = [compiler, "-O1", "-w", "-static", str(folder / "twice.c"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert program.exists(), done.stderr
    return program


@pytest.mark.parametrize(
    "compiler", ["gcc", "musl-gcc", "i686-linux-gnu-gcc", "aarch64-linux-gnu-gcc"]
)
def test_all_functions_of_a_program(compiler: str, tmp_path: Path) -> None:
    image = open_image(_static(compiler, tmp_path))
    functions = read_functions(image)
    symbols = image.symbols
    wanted = set(TWICE) if compiler != "musl-gcc" else {"setjmp", "_setjmp", "sigsetjmp", "vfork"}
    for name in wanted:
        address = symbols.find(name)
        assert address and returns_twice(functions.arch, address, functions.code_at), name
    expected = {symbols.find(name) for name in wanted}
    found = [
        address
        for address in functions.start.tolist()
        if address not in expected and returns_twice(functions.arch, address, functions.code_at)
    ]
    # The entry of the process takes argc off, and is called by nobody; nor are parts of functions.
    false = [one for one in found if functions.is_called(one) and functions.is_entry(one)]
    names = [list(symbols.names(np.flatnonzero(symbols.value == one))) for one in false]
    assert not names
    for name in NOT:
        address = symbols.find(name)
        assert not address or not returns_twice(functions.arch, address, functions.code_at), name


@pytest.mark.parametrize(
    ("compiler", "arch"),
    [
        ("gcc", "x86_64"),
        ("i686-linux-gnu-gcc", "i386"),
        ("aarch64-linux-gnu-gcc", "arm64"),
        ("loongarch64-linux-gnu-gcc", "loongarch64"),
    ],
)
def test_it_is_refused_where_there_are_no_names(compiler: str, arch: str, tmp_path: Path) -> None:
    program = _static(compiler, tmp_path)
    symbols = open_image(program).symbols
    address = {name: symbols.find(name) for name in TWICE}
    stripped, out = tmp_path / "stripped", tmp_path / "out"
    strip = compiler.replace("gcc", "strip") if "-" in compiler else "strip"
    subprocess.run([strip, str(program), "-o", str(stripped)], check=True)
    for at in address.values():
        assert at is not None
        done = ftpatch("probe", stripped, f"r:one {at:#x}", "-o", out)
        assert done.code == 2 and not out.exists()
        assert f"one: the function at {at:#x} returns twice per call; use a p probe" in done.err
    done = ftpatch("probe", stripped, f"p:one {address['_setjmp']:#x}", "-o", out)
    assert done.code == 0, done.err
    expected = run(program, [], cwd=tmp_path, arch=arch)
    got = run(out, [], cwd=tmp_path, arch=arch, env={"FTPATCH_TRACE": str(tmp_path / "trace")})
    assert (got.status, got.out) == (expected.status, expected.out) == (0, b"0\n1\n2\n3\n")


def test_busybox() -> None:
    """Debian's, stripped: two of each, and nothing else that is called."""
    busybox = Path("/bin/busybox")
    if not busybox.exists():
        pytest.skip("no busybox")
    image = open_image(busybox)
    if len(image.symbols) or image.elf.section(".interp") is not None:
        pytest.skip("it is not busybox-static")
    functions = read_functions(image)
    found = [
        at
        for at in functions.start.tolist()
        if functions.is_called(at) and returns_twice(functions.arch, at, functions.code_at)
    ]
    text = image.elf.section(".text")
    assert text is not None
    assert 3 <= len(found) <= 5
    for at in found:
        done = ftpatch("probe", busybox, f"r {at:#x}", "--dry-run")
        assert "returns twice per call" in done.err
