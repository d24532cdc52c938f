# SPDX-License-Identifier: MIT
"""The library of tests/programs/libraries/whole.c, with a tracer of its own, in programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.gnu import runner
from tests.support.library_programs import PAD, SOURCES
from tests.support.tracer_programs import ARCHES

__all__ = ["COUNTED", "Ran", "built", "command", "counts", "enabled", "told"]

NAME = "libwhole.so.1"
COUNTED = ("leaf", "deep", "back", "chosen", "begin")
"""Functions, without their prefix, in the order in which the program counts them."""
CPUS = {"ppc64le": "power9", "riscv64": "rv64"}
SIZE = "4M"


@dataclass(frozen=True)
class Ran:
    """How a program ended, what it printed, and the traces that it left."""

    code: int
    out: str
    err: str
    traces: list[Path]


def built(
    folder: Path,
    *flags: str,
    compiler: str = "gcc",
    pad: str = PAD,
    opens: bool = False,
    main: Sequence[str] = (),
) -> tuple[Path, Path]:
    """Compile the library, with ``flags``, and the program that it stands beside; ``opens``: that
    opens it; ``main``: what its compiler is given."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    library, program = folder / NAME, folder / "prog"
    words = [compiler, "-O2", "-fno-inline", "-w"]
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{NAME}", pad, *flags]
    _do([*words, *shared, str(SOURCES / "whole.c"), "-o", str(library)])
    linked = ["-DOPENS"] if opens else [str(library), "-Wl,-rpath,$ORIGIN"]
    _do([*words, *main, str(SOURCES / "whole_main.c"), "-pthread", *linked, "-o", str(program)])
    return library, program


def command(arch: str, program: Path, *args: str | Path) -> list[str | Path]:
    """The words that run a program of an architecture, under qemu where it has to be."""
    words = [*runner(arch)]
    if words:
        words += ["-L", ARCHES[arch].root, "-cpu", CPUS.get(arch, "max")]
    return [*words, program, *args]


def _do(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def enabled(library: Path, tracer: str, *options: str) -> bytes:
    """Give a library a tracer, in its place; return what it was before."""
    before = library.read_bytes()
    done = ftpatch("enable", library, "--tracer", tracer, "--in-place", *options)
    assert done.code == 0, done.err
    return before


def told(words: Sequence[str | Path], folder: Path, **env: str) -> Ran:
    """Run a program that has its traces in a folder."""
    for old in folder.glob("x.trace*"):
        old.unlink()
    place = {"FTPATCH_TRACE": str(folder / "x.trace"), "FTPATCH_TRACE_SIZE": SIZE}
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, **place, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=folder,
    )
    return Ran(done.returncode, done.stdout, done.stderr, sorted(folder.glob("x.trace*")))


def counts(trace: Path) -> Counter[str]:
    """Count the calls of each function in a trace."""
    result = ftpatch("report", trace, "--format", "profile", "--no-children")
    assert result.code == 0, result.err
    rows = [line.split() for line in result.out.splitlines()]
    return Counter({row[-1]: int(row[0]) for row in rows if row and row[0].isdigit()})
