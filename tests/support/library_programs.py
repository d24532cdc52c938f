# SPDX-License-Identifier: MIT
"""A program and its library of tests/programs/libraries, built in every form, and their traces."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch_process
from tests.support.gnu import i386_libraries

__all__ = [
    "FORMS",
    "PAD",
    "PREFIX",
    "SOURCES",
    "Form",
    "Traced",
    "build",
    "compiled",
    "plain",
    "trace",
]

SOURCES = Path(__file__).parent.parent / "programs" / "libraries"
PAD = "-fpatchable-function-entry=5"
PREFIX = {"x86_64": "", "i386": "i686-linux-gnu-"}
LINKS = {"pie": ("-pie", "-fPIE"), "no-pie": ("-no-pie", "-fno-pie")}


@dataclass(frozen=True)
class Form:
    """How both are built."""

    arch: str = "x86_64"
    link: str = "pie"
    level: str = "-O2"

    def __str__(self) -> str:
        return "-".join((self.arch, self.link, self.level[1:]))


FORMS = [Form(*words) for words in itertools.product(PREFIX, LINKS, ("-O0", "-O2"))]


def compiled(folder: Path, source: str | Path, name: str, *flags: str, form: Form = Form()) -> Path:
    """Compile a file of SOURCES, or another; skips where there is no compiler for it."""
    path = Path(SOURCES / source)
    compiler = f"{PREFIX[form.arch]}{'g++' if path.suffix == '.cpp' else 'gcc'}"
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    target = folder / name
    target.parent.mkdir(exist_ok=True)
    words = [compiler, form.level, "-fno-inline", "-w", f"-I{SOURCES}", str(path), "-pthread"]
    done = subprocess.run(
        [*words, "-o", str(target), *flags], capture_output=True, text=True, check=False, cwd=folder
    )
    assert not done.returncode, done.stderr
    return target


def build(
    folder: Path,
    form: Form = Form(),
    *,
    suffix: str = "c",
    sites: tuple[str, str] = (PAD, PAD),
    rpath: tuple[str, ...] = ("-Wl,-rpath,$ORIGIN",),
    place: str = "libshared.so.1",
) -> Path:
    """The program, beside ``place`` of the library; ``sites``: what asks for sites in the program,
    and in the library."""
    soname = "-Wl,-soname,libshared.so.1"
    library = compiled(
        folder, f"shared.{suffix}", place, "-shared", "-fPIC", soname, *sites[1].split(), form=form
    )
    flags = [*LINKS[form.link], *sites[0].split(), str(library), *rpath]
    if form.arch == "i386":
        root = Path("/usr/i686-linux-gnu/lib")
        flags.append(f"-Wl,-rpath,{root},--dynamic-linker={root}/ld-linux.so.2")
        flags += i386_libraries(plus=suffix == "cpp")
    return compiled(folder, f"main.{suffix}", "prog", *flags, form=form)


def plain(program: Path) -> tuple[int, str]:
    """How it ends without a tracer, and what it prints."""
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@dataclass(frozen=True)
class Traced:
    """A run: ``events`` are what ``report --json`` told of it, which is not in ``out``."""

    code: int
    out: str
    err: str
    events: list[dict[str, Any]]

    @property
    def calls(self) -> list[tuple[int, str]]:
        """(level, function) of each entry."""
        return [(e["depth"], e["function"]) for e in self.events if e["event"] == "entry"]


def trace(
    program: Path, *options: str, lib: str = "libshared*", env: dict[str, str] | None = None
) -> Traced:
    """Trace a program, and the libraries of a glob; its file is ``kept``, beside the program."""
    kept = program.with_name("kept")
    for old in kept.parent.glob("kept*"):
        old.unlink()
    words = ["trace", "--lib", lib, "-o", str(kept), "--format", "json", *options, str(program)]
    result = ftpatch_process(*words, env=env)
    lines = result.out.splitlines()
    said = "".join(f"{line}\n" for line in lines if not line.startswith("{"))
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return Traced(result.code, said, result.err, events)
