# SPDX-License-Identifier: MIT
"""Broken images of every kind: each verb ends with 0, 1 or 2, soon, and says why in its own words.

One process for each part, so that a crash of native code is seen as what it is.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.cross_images import CROSS_PROGRAMS, cross_program
from tests.support.fuzz_runs import run_fuzzer
from tests.support.mutate import mutated, regions
from tests.support.samples import SAMPLES, sample
from tests.support.sampling import scaled

COUNT = os.environ.get("FTPATCH_FUZZ_COUNT", str(scaled(4, 1)))
"""Cases of each image; a hundred take a quarter of an hour."""
PARTS = 6


def _names(part: int) -> list[str]:
    names = [s.name for s in SAMPLES if s.name != "pad-glibc-static"]
    names += ["fentry_kernel", "arm64_rela_kernel", "arm64_relr_kernel", "arm64_callops_kernel"]
    names += [f"{name}-cross" for name in CROSS_PROGRAMS]
    return names[part::PARTS]


@pytest.mark.scaled
@pytest.mark.parametrize("part", range(PARTS))
def test_broken_images(part: int, tmp_path: Path) -> None:
    run_fuzzer("fuzz", COUNT, tmp_path, _names(part))


@pytest.mark.parametrize("big", [False, True])
def test_mutations_reach_every_part(big: bool) -> None:
    """A fuzzer that only breaks the magic number proves nothing."""
    data, other = sample("pad").data, sample("fentry").data
    if big:
        data = cross_program("s390x").build()
    said, same = set(), 0
    for case in range(400):
        out, what = mutated(data, other, random.Random(case))
        same += out == data
        said |= {text.split(" ", 1)[1] for text in what.split(", ") if text}
        assert mutated(data, other, random.Random(case))[0] == out, "cases can be repeated"
    assert said == {region.name for region in regions(data)}
    assert same < 100
