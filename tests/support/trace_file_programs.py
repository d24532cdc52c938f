# SPDX-License-Identifier: MIT
"""Traced programs and what their trace files hold: tests/programs/files.c, and one of two calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch, ftpatch_process
from tests.support.padded import padded
from tests.support.trace_events import ENTRIES, read_trace

__all__ = ["SIZE", "build", "entries", "lost", "native", "run", "trace_twice", "with_tracer"]

PROGRAM = Path(__file__).parent.parent / "programs" / "files.c"
SIZE = "2M"
"""Of trace files: the second reader reads all of them."""
native = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)


def build(folder: Path, *flags: str) -> Path:
    path = folder / "prog"
    words = ["gcc", "-O1", "-fpatchable-function-entry=5", str(PROGRAM), "-o", str(path)]
    subprocess.run([*words, "-pthread", *flags], check=True)
    return path


def trace_twice(folder: Path, report: str) -> None:
    """Trace a program that calls twice(3) and returns that, into run.trace and ``report``."""
    source = "int twice(int n) { return n * 2; }\nint main(void) { return twice(3); }\n"
    prog = padded(folder, source, "-O0")
    done = ftpatch_process("trace", "--report", report, "-o", "run.trace", prog, cwd=folder)
    assert done.code == 6, done


def with_tracer(program: Path) -> Path:
    target = program.with_name("traced")
    done = ftpatch("enable", program, "--tracer", "function_graph", "-f", "work", "-o", target)
    assert done.code == 0, done.err
    return target


def run(traced: Path, *words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(traced), *words],
        cwd=cwd,
        env={**os.environ, "FTPATCH_TRACE_SIZE": SIZE, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def entries(*files: Path) -> int:
    return sum(event.type in ENTRIES for file in files for event in read_trace(file).events)


def lost(*files: Path) -> int:
    return sum(sum(read_trace(file).lost.values()) for file in files)
