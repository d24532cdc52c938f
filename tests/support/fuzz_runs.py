# SPDX-License-Identifier: MIT
"""Fuzzers run as processes of their own: what they print, and that they live to the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.support.command import ROOT, child_env
from tests.support.sampling import FUZZ

__all__ = ["run_fuzzer"]


def run_fuzzer(module: str, count: str, folder: Path, names: Iterable[str]) -> None:
    """Run ``tests.support.MODULE`` for ``count`` cases of each name, drawn by FTPATCH_FUZZ;
    assert that nothing was wrong."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.support.{module}", str(FUZZ), count, str(folder), *names],
        cwd=ROOT,
        env=child_env(PYTHONHASHSEED="0"),
        capture_output=True,
        text=True,
        timeout=60 * int(count) + 240,
        check=False,
    )
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if not line.startswith(("case:", "done"))]
    assert not wrong, "\n".join(wrong)
    last = next((line for line in reversed(lines) if line.startswith("case:")), "no case")
    assert done.returncode == 0, f"died with {done.returncode} in {last}\n{done.stderr[-2000:]}"
    assert lines[-1] == "done"
    assert not done.stderr, done.stderr
