# SPDX-License-Identifier: MIT
"""What others make of a traced program, and reports of odd ends: valgrind, AddressSanitizer, musl,
contexts that come back, a crash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_process

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
PAD = "-fpatchable-function-entry=5"
CALLS = """
#include <stdlib.h>
#define NOINLINE __attribute__((noinline))
#define KEPT(value) __asm__ volatile("" : "+r"(value))
NOINLINE char *make(void) { char *p = malloc(10); KEPT(p); return p; }
NOINLINE char *outer(void) { char *p = make(); KEPT(p); return p; }
int main(int argc, char **argv)
{
	char *p = outer();

	free(p);
	return argv[1] ? p[3] : 0;
}
"""
CRASH = """
__attribute__((noinline)) int leaf(volatile int *p) { return *p; }
__attribute__((noinline)) int mid(volatile int *p) { return leaf(p) + 1; }
int main(void) { volatile int x = 1; mid(&x); return mid(0); }
"""
SWITCHES = """
#include <ucontext.h>
static ucontext_t at[3];
static void bar(ucontext_t *from, ucontext_t *to) { swapcontext(from, to); }
static void first(void) { bar(&at[1], &at[2]); }
static void second(void) { bar(&at[2], &at[1]); }
static void begins(int n, char *stack, int size, void (*function)(void))
{
	getcontext(&at[n]);
	at[n].uc_stack.ss_sp = stack;
	at[n].uc_stack.ss_size = size;
	at[n].uc_link = &at[n - 1];
	makecontext(&at[n], function, 0);
}
int main(void)
{
	static char stacks[2][1 << 14];

	begins(1, stacks[0], sizeof(stacks[0]), first);
	begins(2, stacks[1], sizeof(stacks[1]), second);
	swapcontext(&at[0], &at[2]);
	return 0;
}
"""


def _built(folder: Path, source: str, *flags: str, compiler: str = "gcc") -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    (folder / "prog.c").write_text(source)
    words = [compiler, PAD, "-w", str(folder / "prog.c"), "-o", str(folder / "prog"), *flags]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    return folder / "prog"


def _traced(program: Path, *options: str) -> Path:
    target = program.with_suffix(".traced")
    done = ftpatch("enable", program, "--tracer", "function_graph", "-o", target, *options)
    assert done.code == 0, done.err
    return target


def _run(program: Path, *words: str, **environment: str) -> str:
    """What it writes to its standard error."""
    trace = str(program.with_name("trace"))
    done = subprocess.run(
        [*words, str(program)] if words else [str(program), "use"],
        env={**os.environ, "FTPATCH_TRACE": trace, "FTPATCH_TRACE_SIZE": "1M", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


def test_valgrind_has_nothing_to_say(tmp_path: Path) -> None:
    """Of our unwind information, whose loop it cannot evaluate."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    said = _run(_traced(_built(tmp_path, CALLS, "-g", "-O1")), "valgrind")
    assert "ERROR SUMMARY: 0 errors" in said, said
    assert "Warning" not in said
    assert "DW_OP" not in said


def test_address_sanitizer_finds_callers(tmp_path: Path) -> None:
    """In stacks of malloc() where it is told to unwind them; else it follows frame pointers to
    return addresses, and finds what stands there."""
    flags = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address")
    program = _traced(_built(tmp_path, CALLS, *flags))
    said = _run(program, ASAN_OPTIONS="fast_unwind_on_malloc=0").partition("previously allocated")[
        2
    ]
    callers = re.findall(r"in (make|outer|main) ", said)
    assert callers == ["make", "outer", "main"], said


@pytest.mark.parametrize("link", ["", "-static", "-static-pie"])
def test_the_end_of_a_musl_program(link: str, tmp_path: Path) -> None:
    """musl calls nothing of what it is given at its start; so nobody says how it ended."""
    program = _built(tmp_path, CALLS, "-O1", *link.split(), compiler="musl-gcc")
    done = ftpatch_process("trace", "--format", "profile", str(program))
    assert done.code == 0, done
    assert "exit()" not in done.out + done.err
    assert re.search(r"^ +1 .* outer$", done.out, re.MULTILINE), done.out


@pytest.mark.parametrize("link", ["", "-static"])
def test_the_end_of_a_glibc_program(link: str, tmp_path: Path) -> None:
    """It is told where one did not end by exit(), and only there."""
    program = _built(tmp_path, CALLS, "-O1", *link.split())
    assert "exit()" not in ftpatch_process("trace", "--format", "profile", str(program)).out
    program = _built(tmp_path, CRASH, "-O1", *link.split())
    assert "did not end by exit()" in ftpatch_process("trace", str(program)).out


def test_contexts_are_closed_once(tmp_path: Path) -> None:
    done = ftpatch_process("trace", str(_built(tmp_path, SWITCHES, "-O0")))
    assert done.code == 0, done.err
    body = "".join(line for line in done.out.splitlines(keepends=True) if line[0] != "#")
    assert body.count("{") == body.count("}")
    back = re.findall(r"us +\| +/\* (\w+) returned, left before \*/", body)
    assert back == ["bar", "first"], body


def test_the_crashing_leaf_is_folded(tmp_path: Path) -> None:
    program = _built(tmp_path, CRASH, "-O1")
    done = ftpatch_process("trace", "--format", "folded", "-o", str(tmp_path / "t"), str(program))
    assert done.code == 139, done
    (leaf,) = re.findall(r"^main;mid;leaf (\d+)$", done.out, re.MULTILINE)
    only = _built(tmp_path, CRASH.replace("mid(&x); ", ""), "-O1")
    done = ftpatch_process("trace", "--format", "folded", "-o", str(tmp_path / "u"), str(only))
    assert re.search(r"^main;mid;leaf 0$", done.out, re.MULTILINE), (leaf, done.out)
