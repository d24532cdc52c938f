# SPDX-License-Identifier: MIT
"""Signals that meet an unwinder in the middle of the ret_stack.

Where their handler runs on a stack of its own, above the one that is walked up, the frames of that
one are put aside, and those of the handler take their places: the unwinder may have looked at one
already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.gnu import runner
from tests.support.sampling import scaled
from tests.support.tracer_programs import ARCHES

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).parent.parent / "programs" / "interrupted_throws.cc"
WAYS = {
    "x86_64": ("g++", [], 200_000),
    "i386": ("i686-linux-gnu-g++", ["-static"], 200_000),
    "arm64": ("aarch64-linux-gnu-g++", ["-static"], 5_000),
    "riscv64": ("riscv64-linux-gnu-g++", ["-static"], 5_000),
    "ppc64le": ("powerpc64le-linux-gnu-g++", ["-static", *ARCHES["ppc64le"].flags], 5_000),
    "loongarch64": ("loongarch64-linux-gnu-g++", ["-static"], 5_000),
    "arm": ("arm-linux-gnueabihf-g++", ["-static", *ARCHES["arm"].flags], 5_000),
    "s390x": ("s390x-linux-gnu-g++", ["-static"], 5_000),
}
"""By architecture: its compiler and flags, and the exceptions that it throws in a few seconds."""


@pytest.mark.parametrize("tracer", ["function_graph", "function_profile"])
@pytest.mark.parametrize("arch", WAYS)
def test_every_exception_is_caught(arch: str, tracer: str, tmp_path: Path) -> None:
    compiler, flags, rounds = WAYS[arch]
    runs = runner(arch)
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    rounds = rounds // scaled(1, 4)
    program, traced = tmp_path / "throws", tmp_path / "traced"
    built = [compiler, "-O2", "-fno-inline", "-fpatchable-function-entry=5", *flags]
    subprocess.run([*built, SOURCE, "-o", program], check=True)
    done = ftpatch("enable", program, "--tracer", tracer, "-o", traced)
    assert done.code == 0, done.err
    said = subprocess.run(
        [*runs, traced, str(rounds)],
        env={**os.environ, "FTPATCH_TRACE": str(tmp_path / "trace")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stdout) == (0, f"{rounds} 1\n"), said.stderr
