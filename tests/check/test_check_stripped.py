# SPDX-License-Identifier: MIT
"""What `strip` leaves of a program that has something inserted: `check` and `status` tell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch

LAID = {
    "tracer": ("enable", "--tracer", "function_graph"),
    "probes": ("probe", "p sell"),
    "watches": ("watch", "stock:-w-"),
}


@pytest.fixture(name="program")
def _program(tmp_path: Path) -> Path:
    source = Path(__file__).parents[2] / "samples" / "shop.c"
    program = tmp_path / "shop"
    pad = "-fpatchable-function-entry=5"
    subprocess.run(["gcc", "-O1", pad, source, "-o", program], check=True)
    return program


@pytest.mark.parametrize("kind", LAID)
def test_stripped_before(kind: str, program: Path) -> None:
    subprocess.run(["strip", "--keep-symbol=sell", "--keep-symbol=stock", program], check=True)
    verb, *words = LAID[kind]
    assert ftpatch(verb, program, *words, "--in-place").code == 0
    env = {**os.environ, "FTPATCH_TRACE": str(program.with_name("trace"))}
    assert subprocess.run([program], env=env, check=True, capture_output=True).stdout
    done = ftpatch("check", program, "--json")
    assert (
        "entry-mapped" not in done.out and "nothing is left" not in ftpatch("status", program).out
    )


@pytest.mark.parametrize("tool", ["strip", "objcopy"])
@pytest.mark.parametrize("kind", LAID)
def test_stripped_afterwards(kind: str, tool: str, program: Path) -> None:
    """It does not start, as its user would find out: the finding is the kernel's, too."""
    verb, *words = LAID[kind]
    assert ftpatch(verb, program, *words, "--in-place").code == 0
    out = shutil.copy2(program, program.with_name("out"))
    subprocess.run([tool, out], check=True, capture_output=True)
    assert subprocess.run([out], capture_output=True, check=False).returncode < 0
    done = ftpatch("check", out)
    assert done.code == 1 and "nothing at the entry point; strip and objcopy drop" in done.out
    assert ("where there is nothing" in done.out) == (kind == "tracer")
    assert "nothing is left at the entry point; see `ftpatch check`" in ftpatch("status", out).out


def test_a_library(tmp_path: Path) -> None:
    (tmp_path / "sum.c").write_text("int sum(int a, int b) { return a + b; }\n")
    library, pad = tmp_path / "libsum.so", "-fpatchable-function-entry=5"
    subprocess.run(
        ["gcc", "-O1", pad, "-shared", "-fPIC", tmp_path / "sum.c", "-o", library], check=True
    )
    assert ftpatch("enable", library, "--tracer", "function", "--in-place").code == 0
    assert ftpatch("check", library).code == 0
    subprocess.run(["strip", library], check=True, capture_output=True)
    done = ftpatch("check", library)
    assert done.code == 1 and "nothing at the address in DT_INIT; strip" in done.out
    assert "nothing is left at the address in DT_INIT" in ftpatch("status", library).out
