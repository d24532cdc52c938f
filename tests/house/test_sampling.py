# SPDX-License-Identifier: MIT
"""What `make test` leaves out, `make test-full` runs; what it keeps can be repeated."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import sampling
from tests.support.command import ROOT
from tests.support.sampling import SHARE, sample

PRODUCT = list(itertools.product(("x86_64", "arm64", "i386"), ("pie", "static"), range(9)))
FILE = "tests/io/test_links.py"


@pytest.mark.parametrize("seed", range(20))
def test_every_shared_value_occurs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SEED", seed)
    chosen = sample(PRODUCT)
    assert {value for index in chosen for value in PRODUCT[index]} == {
        value for case in PRODUCT for value in case
    }
    assert SHARE * len(PRODUCT) <= len(chosen) < len(PRODUCT) / 3
    assert chosen == sample(PRODUCT), "it can be repeated"


def test_another_seed_is_another_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for seed in range(20):
        monkeypatch.setattr(sampling, "SEED", seed)
        found.add(tuple(sample(PRODUCT)))
    assert len(found) == 20
    assert len({index for chosen in found for index in chosen}) == len(PRODUCT)


def test_cases_without_shared_values_give_their_share() -> None:
    assert len(sample([(number,) for number in range(48)])) == 48 * SHARE
    assert sample([("alone",)]) == [0]


def test_slow_tests_are_there() -> None:
    for name in sampling.SLOW:
        path, _, function = name.partition("::")
        assert f"\ndef {function}(" in (ROOT / path).read_text(), name


def _collected(full: str, seed: str, *words: str) -> tuple[set[str], str]:
    """Names of tests, and what is said of them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *(words or [FILE])],
        cwd=ROOT,
        env={**os.environ, "FTPATCH_FULL": full, "FTPATCH_SEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    return {line for line in lines if "::" in line}, "\n".join(lines[-3:])


def test_the_sample_and_the_rest_are_everything() -> None:
    every, said = _collected("1", "5")
    assert "left out" not in said
    some, said = _collected("", "5")
    assert f"{len(every - some)} cases left out (FTPATCH_SEED=5)" in said
    rest, _ = _collected("rest", "5")
    assert some < every and rest == every - some
    name = min(rest)
    assert _collected("", "5", name)[0] == {name}, "who names a test gets it"


def test_of_very_many_the_rest_takes_others_each_day() -> None:
    file = "tests/tracer/test_tracer_matrix.py"
    every, _ = _collected("1", "5", file)
    some, _ = _collected("", "5", file)
    name = f"{file}::test_it_does_what_it_did["
    found = [
        {one for one in _collected("rest", seed, file)[0] if one.startswith(name)}
        for seed in ("5", "5", "6")
    ]
    assert len([one for one in every if one.startswith(name)]) > 2 * sampling.MAX_REST
    assert all(len(one) == sampling.MAX_REST for one in found)
    assert found[0] == found[1] != found[2] and not found[0] & some


def test_of_slow_cases_the_rest_takes_others_each_day() -> None:
    folder = "tests/process"

    def slow_ones(names: set[str]) -> set[str]:
        return {name for name in names if name.partition("[")[0] in sampling.SLOW}

    every = slow_ones(_collected("1", "5", folder)[0])
    left = every - slow_ones(_collected("", "5", folder)[0])  # tests that are scaled run again
    found = [slow_ones(_collected("rest", seed, folder)[0]) for seed in ("5", "5", "6")]
    assert len(found[0]) == pytest.approx(sampling.SLOW_REST * len(left), rel=0.1)
    assert found[0] == found[1] != found[2] and found[0] <= every


def test_a_failure_says_how_to_repeat_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_makereport\n")
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert False\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FTPATCH_SEED": "7", "FTPATCH_FULL": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "\nFTPATCH_SEED=7\n" in done.stdout, done.stdout
