"""Broken modules of every form, patched, signed and packed: each verb ends with 0, 1 or 2, soon,
and writes nothing that cannot be read or taken back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .command import ROOT
from .fuzz_modules import NAMES
from .test_fuzz import COUNT, SEED

PARTS = 6


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_modules(part: int, tmp_path: Path) -> None:
    names = NAMES[part::PARTS]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz_modules", SEED, COUNT, str(tmp_path), *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60 * int(COUNT) + 60,
        check=False,
    )
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if not line.startswith(("case:", "done"))]
    assert not wrong, "\n".join(wrong)
    last = next((line for line in reversed(lines) if line.startswith("case:")), "no case")
    assert done.returncode == 0, f"died with {done.returncode} in {last}\n{done.stderr[-2000:]}"
    assert lines[-1] == "done"
    assert not done.stderr, done.stderr
