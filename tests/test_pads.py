"""Programs compiled here, with pads of every length, run before and after."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from .command import ftpatch

SOURCE = """
int printf(const char *, ...);
extern int calls;
__attribute__((noinline)) int one(int a) { return a * 3; }
__attribute__((noinline)) int two(int a) { return one(a) + one(a + 1); }
__attribute__((patchable_function_entry(0, 0), no_instrument_function))
int main(void) { int r = two(4); printf("%d %d\\n", r, calls); return 0; }
"""
CALLER = """
    .globl ftrace_caller, __fentry__, calls
    .type ftrace_caller, @function
    .type __fentry__, @function
    .text
ftrace_caller:
    incl calls(%rip)
    ret
__fentry__:
    ret
    .bss
calls: .zero 4
    .section .note.GNU-stack,"",@progbits
"""
PADS = ["5", "6", "7", "8", "9", "10", "11", "14", "16", "20", "7,2", "10,3", "8,2", "15,5", "20,4"]

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs x86-64 programs")


def _build(folder: Path, *objects: tuple[str, list[str]]) -> Path:
    """A program of main.c compiled with the first flags, and further copies of one()."""
    caller = folder / "caller.S"
    caller.write_text(CALLER)
    parts = [str(caller)]
    for number, (compiler, flags) in enumerate(objects):
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not installed")
        source, part = folder / f"{number}.c", folder / f"{number}.o"
        other = "__attribute__((noinline)) int other(int a) { return a * 5; }\n"
        source.write_text(SOURCE if number == 0 else other)
        subprocess.run([compiler, "-O2", "-c", *flags, str(source), "-o", str(part)], check=True)
        parts.append(str(part))
    program = folder / "program"
    subprocess.run(["gcc", "-no-pie", *parts, "-o", str(program)], check=True)
    return program


def _run(program: Path) -> str:
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("pad", PADS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_pad_is_called_and_undone(tmp_path: Path, compiler: str, pad: str) -> None:
    program = _build(tmp_path, (compiler, [f"-fpatchable-function-entry={pad}", "-fno-pie"]))
    original = program.read_bytes()
    assert _run(program) == "27 0\n"
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert _run(program) == "27 3\n"
    assert ftpatch("check", program).code == 0
    done = ftpatch("disable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert _run(program) == "27 0\n"
    assert ftpatch("undo", "--all", program).code == 0
    assert program.read_bytes() == original


@pytest.mark.parametrize("nop", ["p6", "nop5", "jmp"])
def test_another_nop_over_a_pad(tmp_path: Path, nop: str) -> None:
    program = _build(tmp_path, ("clang", ["-fpatchable-function-entry=9", "-fno-pie"]))
    done = ftpatch("disable", "--json", "--in-place", "--nop", nop, program)
    assert (done.code, done.only["changed"]) == (0, 2), done.err
    assert _run(program) == "27 0\n"


def test_objects_compiled_in_both_ways(tmp_path: Path) -> None:
    """One table of calls and one of pads: both are the table."""
    fentry = ["-pg", "-mfentry", "-mrecord-mcount", "-fno-pie"]
    program = _build(
        tmp_path, ("gcc", ["-fpatchable-function-entry=5", "-fno-pie"]), ("gcc", fentry)
    )
    status = ftpatch("status", "--json", program).only
    assert status["table"] == "__mcount_loc,__patchable_function_entries"
    assert status["states"] == {"nop": 2, "call": 1, "unexpected": 0}
    done = ftpatch("enable", "--json", "--in-place", program)
    assert (done.code, done.only["changed"]) == (0, 3), done.err
    assert _run(program) == "27 3\n"


def test_a_site_that_the_loader_writes_to_is_refused(tmp_path: Path) -> None:
    """A library with text relocations: what stands at its sites is not what will be executed."""
    compiler = "i686-linux-gnu-gcc"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source, library = tmp_path / "text.c", tmp_path / "text.so"
    source.write_text("int g(int x) { return x * 2 + 1; }\n")
    flags = ["-O1", "-shared", "-fno-pic", "-pg", "-mfentry", "-mrecord-mcount", "-Wl,-z,notext"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    before = library.read_bytes()
    done = ftpatch("disable", "--json", "--in-place", library)
    assert done.code == 1
    assert done.only["failed"][0]["reason"] == (
        "EINVAL: a relocation writes over it when the file is loaded"
    )
    assert library.read_bytes() == before
    assert "site-relocated" in [
        row["invariant"] for row in ftpatch("check", "--json", library).json
    ]


def test_an_indirect_function_is_no_callee(tmp_path: Path) -> None:
    """Sites would call the resolver instead of what it chooses."""
    program = _build(tmp_path, ("gcc", ["-fpatchable-function-entry=5", "-fno-pie"]))
    more = tmp_path / "ifunc.c"
    more.write_text(
        "static void f(void) {}\nstatic void *pick(void) { return f; }\n"
        'void chosen(void) __attribute__((ifunc("pick")));\n'
    )
    objects = [str(tmp_path / name) for name in ("caller.S", "0.o")]
    subprocess.run(["gcc", "-no-pie", *objects, str(more), "-o", str(program)], check=True)
    done = ftpatch("enable", "--to", "chosen", "--in-place", program)
    assert done.code == 2
    assert "no function that can be called directly" in done.err
