"""Broken images of every kind: each verb ends with 0, 1 or 2, soon, and says why in its own words.

One process for each part, so that a crash of native code is seen as what it is.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from .command import ROOT
from .mutate import mutated, regions
from .samples import SAMPLES, sample

SEED = os.environ.get("FTPATCH_FUZZ_SEED", "1")
COUNT = os.environ.get("FTPATCH_FUZZ_COUNT", "4")
"""Cases of each image; a hundred take a quarter of an hour."""
PARTS = 6


def _names(part: int) -> list[str]:
    names = [s.name for s in SAMPLES if s.name != "pad-glibc-static"]
    names += ["fentry_kernel", "arm64_rela_kernel", "arm64_relr_kernel", "arm64_callops_kernel"]
    return names[part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
def test_broken_images(part: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", SEED, COUNT, str(tmp_path), *_names(part)],
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


def test_mutations_reach_every_part() -> None:
    """A fuzzer that only breaks the magic number proves nothing."""
    data, other = sample("pad").data, sample("fentry").data
    said, same = set(), 0
    for case in range(400):
        out, what = mutated(data, other, random.Random(case))
        same += out == data
        said |= {text.split(" ", 1)[1] for text in what.split(", ") if text}
        assert mutated(data, other, random.Random(case))[0] == out, "cases can be repeated"
    assert said == {region.name for region in regions(data)}
    assert same < 100
