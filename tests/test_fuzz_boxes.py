"""Broken kernels as they are installed: as test_fuzz.py, but with what may stand around one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from .command import ROOT
from .fuzz_boxes import NAMES, broken

SEED = os.environ.get("FTPATCH_FUZZ_SEED", "1")
COUNT = os.environ.get("FTPATCH_FUZZ_COUNT", "2")
"""Cases of each container; a hundred take a quarter of an hour."""
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_containers(part: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz_boxes", SEED, COUNT, tmp_path, *NAMES[part::PARTS]],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=60 * int(COUNT) + 240,
        check=False,
    )
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if not line.startswith(("case:", "done"))]
    assert not wrong, "\n".join(wrong)
    last = next((line for line in reversed(lines) if line.startswith("case:")), "no case")
    assert done.returncode == 0, f"died with {done.returncode} in {last}\n{done.stderr[-2000:]}"
    assert lines[-1] == "done"
    assert not done.stderr, done.stderr


def test_mutations_reach_every_part() -> None:
    """Of what is around a kernel, and of the kernel inside."""
    said = set()
    for name in ("vmlinuz-zstd", "vmlinuz-gzip.efi", "arm64-rela", "module.ko.zst", "stripped"):
        for case in range(60):
            data, what = broken(name, random.Random(case))
            if case < 5:
                assert broken(name, random.Random(case))[0] == data, "cases can be repeated"
            where, _, text = what.partition(": ")
            said |= {f"{where} {part.split(' ', 1)[1]}" for part in text.split(", ") if part}
    assert said >= {f"around {name}" for name in ("payload's place", "stream", "end", "whole")}
    assert said >= {
        f"inside {name}" for name in ("text", "kallsyms", "table", "relocations", ".init.data")
    }
