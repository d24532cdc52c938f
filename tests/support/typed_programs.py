# SPDX-License-Identifier: MIT
"""Programs that print their arguments as JSON, and what a trace of them says."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.tracer_programs import ARCHES, run, traced

__all__ = ["Build", "Call", "calls", "missing", "recorded"]

TARGETS = {
    "x86_64": "",
    "i386": "i686-linux-gnu",
    "arm64": "aarch64-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "s390x": "s390x-linux-gnu",
    "arm": "arm-linux-gnueabihf",
}
CALLED = re.compile(r"(~?[\w$]+)(?:<[^()]*>)?(?=\()")
"""The name of a function in its C++ name."""


@dataclass(frozen=True)
class Build:
    """How a program is compiled."""

    arch: str
    compiler: str
    level: str
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "-".join((self.arch, self.compiler, self.level[1:], *self.more))

    def program(self, source: Path, folder: Path) -> Path:
        """Compile and link; what links is gcc. Skips where the compiler is not there."""
        if self.arch in CROSS:
            use_cross_root(self.arch)
        arch, part = ARCHES[self.arch], folder / f"{source.stem}.o"
        plus = source.suffix == ".cpp"
        linker = arch.gxx if plus else arch.gcc
        compiler = [linker]
        if self.compiler == "clang":
            target = TARGETS[self.arch]
            compiler = ["clang++" if plus else "clang"] + [f"--target={target}"] * bool(target)
        program = folder / source.stem
        flags = ["-g", "-w", "-fno-pie", self.level, arch.pad, *self.more]
        flags += arch.flags if self.compiler == "gcc" else ()
        for step in (
            [*compiler, *flags, "-c", str(source), "-o", str(part)],
            [linker, "-static", "-no-pie", str(part), "-o", str(program)],
        ):
            try:
                done = subprocess.run(step, capture_output=True, text=True, check=False)
            except FileNotFoundError:
                pytest.skip(f"{step[0]} is not installed")
            assert not done.returncode, done.stderr
        return program


@dataclass(frozen=True)
class Call:
    """A call as its program printed it, and as the trace has it: None where only the words are
    known."""

    name: str
    printed: dict[str, Any]
    named: dict[str, Any] | None


def recorded(program: Path, arch: str) -> tuple[Path, list[tuple[str, dict[str, Any]]]]:
    """Run a program with a tracer: its trace, and what it printed."""
    target, file = traced(program, "function_graph", "--args"), program.with_suffix(".trace")
    done = run(target, cwd=program.parent, arch=arch, env={"FTPATCH_TRACE": str(file)})
    assert done.status == 0, done
    lines = [json.loads(line) for line in done.out.splitlines()]
    return file, [next(iter(line.items())) for line in lines]


def calls(program: Path, arch: str) -> list[Call]:
    """The calls that a program printed, beside those that its trace has."""
    file, printed = recorded(program, arch)
    report = ftpatch("report", file, "--format", "json")
    assert report.code == 0, report.err
    names = {name for name, _ in printed}
    entries = [
        (name, _of(name, event.get("arguments")))
        for event in report.json
        if event["event"] == "entry" and (name := _called(event["function"])) in names
    ]
    assert [name for name, _ in entries] == [name for name, _ in printed]
    return [
        Call(name, values, named)
        for (name, values), (_, named) in zip(printed, entries, strict=True)
    ]


def missing(printed: Any, named: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Paths of the values that a trace does not have; all others are as they were printed."""
    copied = not isinstance(printed, str) and isinstance(named, str) and named[:1] == "@"
    if named is None or copied:
        yield path
    elif isinstance(printed, dict):
        assert isinstance(named, dict), path
        assert list(named) == list(printed), path
        for key, value in printed.items():
            yield from missing(value, named[key], f"{path}.{key}")
    elif isinstance(printed, list):
        assert len(named) == len(printed), path
        for number, (one, other) in enumerate(zip(printed, named, strict=True)):
            yield from missing(one, other, f"{path}.{number}")
    elif isinstance(printed, float):
        assert math.isclose(printed, named, rel_tol=1e-6), (path, printed, named)
    else:
        assert named == printed, path


def _of(name: str, named: dict[str, Any] | None) -> dict[str, Any] | None:
    """The arguments without the first one of those that cannot print it."""
    if named and "2" in named:  # gcc does not name the elements of packs
        named = {"rest" if key == "2" else key: value for key, value in named.items()}
    return dict([*named.items()][1:]) if named and name in ("lambda", "skips") else named


def _called(function: str) -> str:
    found = CALLED.search(function)
    name = found[1] if found else function
    return "lambda" if name == "operator" else name
