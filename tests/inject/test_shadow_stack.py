# SPDX-License-Identifier: MIT
"""A program that asks for a shadow stack loses that property where return addresses are replaced,
and the command says so. readelf says what the properties are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch

LINE = "SHSTK cleared: replaced return addresses would fault under a shadow stack"
SOURCE = """
__attribute__((noinline)) int step(int n) { return n + 1; }
int main(void) { return step(1) - 2; }
"""


def _program(folder: Path, *flags: str) -> Path:
    (folder / "a.c").write_text(SOURCE)
    program = folder / "a"
    command = ["gcc", "-O1", "-fpatchable-function-entry=5", *flags, str(folder / "a.c")]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def _asks(path: Path) -> bool:
    done = subprocess.run(["readelf", "-nW", str(path)], capture_output=True, text=True, check=True)
    return "SHSTK" in done.stdout


COMMANDS = [
    ("enable", "--tracer", "function_graph"),
    ("enable", "--tracer", "function_profile"),
    ("probe", "p step"),
    ("probe", "r step", "--no-optimize"),
]
KEPT = [("enable", "--to", "step", "-f", "main"), ("enable", "--tracer", "function"), ("disable",)]


@pytest.mark.parametrize("command", [*COMMANDS, *KEPT], ids=" ".join)
def test_it_is_said_where_it_is_so(command: tuple[str, ...], tmp_path: Path) -> None:
    program, out = _program(tmp_path, "-fcf-protection=full", "-Wl,-z,shstk"), tmp_path / "out"
    assert _asks(program)
    verb, *args = command
    done = ftpatch(verb, program, *args, "-o", out)
    assert done.code == 0, done.err
    assert (LINE in done.out.splitlines()) == (not _asks(out)) == (command in COMMANDS)
    rows = ftpatch(verb, program, *args, "-o", out, "--force", "--json").json
    assert [row.get("cleared") for row in rows] == ["SHSTK" if command in COMMANDS else None]


def test_it_is_not_said_where_nobody_asked(tmp_path: Path) -> None:
    program = _program(tmp_path, "-fcf-protection=none")
    assert not _asks(program)
    for verb, *args in COMMANDS:
        done = ftpatch(verb, program, *args, "--dry-run")
        assert done.code == 0 and "cleared" not in done.out


def test_of_a_copy_that_is_traced(tmp_path: Path) -> None:
    program = _program(tmp_path, "-fcf-protection=full", "-Wl,-z,shstk")
    done = ftpatch("trace", program)
    assert (done.code, done.err) == (0, f"ftpatch: {program}: in the running copy, {LINE}\n")
    assert "step" in done.out
    done = ftpatch("trace", "--tracer", "function", program)
    assert (done.code, done.err) == (0, "")
