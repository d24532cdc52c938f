# SPDX-License-Identifier: MIT
"""Broken kernels as they are installed: as test_fuzz.py, but with what may stand around one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.support.fuzz_boxes import NAMES, broken
from tests.support.fuzz_runs import run_fuzzer
from tests.support.sampling import scaled

COUNT = os.environ.get("FTPATCH_FUZZ_COUNT", str(scaled(2, 1)))
"""Cases of each container; a hundred take a quarter of an hour."""
PARTS = 4


@pytest.mark.scaled
@pytest.mark.parametrize("part", range(PARTS))
def test_broken_containers(part: int, tmp_path: Path) -> None:
    run_fuzzer("fuzz_boxes", COUNT, tmp_path, NAMES[part::PARTS])


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
