# SPDX-License-Identifier: MIT
"""``ftpatch enable --tracer``: what it makes of a file, by readelf, gdb and the program itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ROOT, ftpatch

PAD = "-fpatchable-function-entry=5"
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int inner(int n) { if (n < 0) abort(); return n ? inner(n - 1) + 1 : 0; }
__attribute__((noinline)) int outer(int n) { return inner(n) * 2; }
int main(int argc, char **argv) { printf("%d\n", outer(argc > 1 ? atoi(argv[1]) : 3)); return 9; }
"""
KINDS = {"pie": (), "static": ("-static",), "no-pie": ("-no-pie",), "static-pie": ("-static-pie",)}
TRACERS = ("nop", "function", "function_graph", "function_profile")
STUB_FLAGS = [
    "-O2",
    "-shared",
    "-fPIC",
    "-nostdlib",
    "-ffreestanding",
    "-mgeneral-regs-only",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-Wl,-Bsymbolic",
]
pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)


def _compile(folder: Path, *flags: str, text: str = PROGRAM, name: str = "prog") -> Path:
    source, path = folder / f"{name}.c", folder / name
    source.write_text(text)
    subprocess.run(["gcc", "-O1", *flags, str(source), "-o", str(path)], check=True)
    return path


def _traced(path: Path, *options: str) -> Path:
    output = path.with_name("traced")
    result = ftpatch("enable", path, "-o", output, "--force", *options)
    assert result.code == 0, result
    return output


def _run(path: Path, *words: str) -> tuple[int, str]:
    environment = {**os.environ, "FTPATCH_TRACE": str(path.parent / "trace")}
    (path.parent / "trace").unlink(missing_ok=True)
    done = subprocess.run(
        [str(path), *words], capture_output=True, text=True, env=environment, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("kind", KINDS)
def test_runs_and_comes_back(kind: str, tracer: str, tmp_path: Path) -> None:
    path = _compile(tmp_path, PAD, *KINDS[kind])
    before = path.read_bytes()
    traced = _traced(path, "--tracer", tracer)
    assert path.read_bytes() == before
    assert _run(traced) == (9, "6\n")
    assert (tmp_path / "trace").exists() == (tracer != "nop")
    assert ftpatch("undo", traced).code == 0
    assert traced.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_structure(kind: str, tmp_path: Path) -> None:
    """readelf has nothing to say against it, its segments are in order, none can be both written
    and executed, and the headers lie in memory where the kernel looks for them."""
    path = _compile(tmp_path, PAD, *KINDS[kind])
    traced = _traced(path, "--tracer", "function_graph")
    words = ["readelf", "-aW", "--debug-dump=frames", str(traced)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    before = subprocess.run([*words[:-1], str(path)], capture_output=True, text=True, check=True)
    assert done.stderr.replace("traced", "prog") == before.stderr
    with traced.open("rb") as file:
        elf = ELFFile(file)
        loads = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        assert all(s["p_flags"] & 3 != 3 for s in loads)
        starts = [s["p_vaddr"] for s in loads]
        assert starts == sorted(starts)
        ends = [s["p_vaddr"] + s["p_memsz"] for s in loads]
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert all((s["p_vaddr"] - s["p_offset"]) % s["p_align"] == 0 for s in loads)
        holds = [
            s for s in loads if s["p_offset"] <= elf["e_phoff"] < s["p_offset"] + s["p_filesz"]
        ]
        delta = loads[0]["p_vaddr"] - loads[0]["p_offset"]
        assert [s["p_vaddr"] - s["p_offset"] for s in holds] == [delta]


def test_debuggers_see_the_callers(tmp_path: Path) -> None:
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    for flags in KINDS.values():
        traced = _traced(_compile(tmp_path, PAD, "-g", *flags), "--tracer", "function_graph")
        words = ["gdb", "-batch", "-ex", "run -1", "-ex", "bt", str(traced)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
        frames = re.findall(r"^#\d+ .* in (\w+) ", done.stdout, re.MULTILINE)
        assert frames[-3:] == ["inner", "outer", "main"], done.stdout
        for file in tmp_path.glob("*.trace"):
            file.unlink()


def test_no_shadow_stack_is_asked_for(tmp_path: Path) -> None:
    path = _compile(tmp_path, PAD, "-fcf-protection=full", "-Wl,-z,shstk,-z,ibt")
    notes = [
        subprocess.run(["readelf", "-n", str(p)], capture_output=True, text=True, check=True).stdout
        for p in (path, _traced(path, "--tracer", "function_graph"))
    ]
    assert "SHSTK" in notes[0] and "SHSTK" not in notes[1] and "IBT" in notes[1]
    assert _run(tmp_path / "traced") == (9, "6\n")


def test_diff_names_the_segment(tmp_path: Path) -> None:
    traced = _traced(_compile(tmp_path, PAD), "--tracer", "function_graph")
    rows = ftpatch("diff", "--json", traced).json
    kinds = [row["kind"] for row in rows]
    assert kinds.count("site") == 3 and "laid in" in kinds and "header" in kinds


def test_only_what_is_chosen(tmp_path: Path) -> None:
    path = _compile(tmp_path, PAD)
    traced = _traced(path, "--tracer", "function_graph", "-f", "inner", "--max-stack", "8")
    assert _run(traced, "20") == (9, "40\n")
    report = ftpatch("report", tmp_path / "trace", "--format", "profile").out
    assert re.search(r"^ +8 .* inner$", report, re.MULTILINE)
    assert not re.search(r"^ +\d.* outer$", report, re.MULTILINE)


def test_a_stub_of_ones_own(tmp_path: Path) -> None:
    stub = tmp_path / "calls.elf"
    source = str(ROOT / "samples/stubs/calls.c")
    subprocess.run(["gcc", *STUB_FLAGS, source, "-o", str(stub)], check=True)
    for kind in KINDS.values():
        traced = _traced(_compile(tmp_path, PAD, *kind), "--tracer", str(stub))
        done = subprocess.run([str(traced)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (9, "6\n")
        assert "".join(line[0] for line in done.stderr.splitlines()) == ">" * 6 + "<" * 6


@pytest.mark.parametrize(
    ("text", "flags", "reason"),
    [
        ("int x;", STUB_FLAGS, "defines no ftrace_caller"),
        ("void ftrace_caller(void) {}", ["-c"], "not a shared object"),
        ("void f(void); void ftrace_caller(void) { f(); }", STUB_FLAGS, "needs a dynamic linker"),
        ("void ftrace_caller(void) {}", ["-shared", "-fPIC"], "needs a dynamic linker"),
    ],
)
def test_what_is_no_stub(text: str, flags: list[str], reason: str, tmp_path: Path) -> None:
    path = _compile(tmp_path, PAD)
    stub = _compile(tmp_path, *flags, text=text, name="stub.elf")
    result = ftpatch("enable", path, "--tracer", stub)
    assert result.code == 2 and reason in result.err and result.err.count("\n") == 1


def test_refusals(tmp_path: Path) -> None:
    path = _compile(tmp_path, PAD)
    traced = _traced(path, "--tracer", "function")
    again = ftpatch("enable", traced, "--tracer", "nop")
    assert again.code == 2 and "already has a tracer" in again.err
    both = ftpatch("enable", path, "--tracer", "nop", "--to", "main")
    assert both.code == 2 and "remove --to and --site" in both.err
    plain = _compile(tmp_path, name="plain")
    result = ftpatch("enable", plain, "--tracer", "function")
    assert result.code == 2 and "compile with -fpatchable-function-entry=5" in result.err
    late = _compile(tmp_path, "-pg", "-mrecord-mcount", "-no-pie", name="late")
    result = ftpatch("enable", late, "--tracer", "function")
    assert result.code == 2 and "after the prologue" in result.err
    path.chmod(0o4755)
    assert "setuid" in ftpatch("enable", path, "--tracer", "function").err
