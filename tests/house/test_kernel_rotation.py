# SPDX-License-Identifier: MIT
"""Tests of real kernels take a few a day: the required ones always, of the others each in turn."""

from __future__ import annotations

import datetime
import itertools

import pytest

from tests.kernels.fetch import METAS, Meta, wanted
from tests.kernels.rotation import PER_DAY, day_of, days, in_share, in_turn, one_of

TAKEN = [meta for meta in METAS if meta.in_turn]
OPTIONAL = [meta for meta in TAKEN if not meta.required]
FIRST = datetime.date(2025, 1, 1)


def _seeds(first: int, count: int) -> list[int]:
    """What `make test-kernels` has for seeds on days that follow each other."""
    dates = (FIRST + datetime.timedelta(first + number) for number in range(count))
    return [int(date.strftime("%Y%m%d")) for date in dates]


@pytest.mark.parametrize("first", range(0, 400, 7))
def test_each_kernel_comes_up_within_a_few_days(first: int) -> None:
    """Over the ends of months and years as well."""
    drawn = [wanted("rotation", seed) for seed in _seeds(first, days(len(OPTIONAL)))]
    assert {meta for metas in drawn for meta in metas} == set(TAKEN)
    for metas in drawn:
        assert [meta for meta in metas if meta.required] == [m for m in METAS if m.required]
        assert sum(not meta.required for meta in metas) == PER_DAY
        assert metas == [meta for meta in METAS if meta in metas], "in their order"


@pytest.mark.parametrize("count", range(1, 12))
def test_however_many_there_are(count: int) -> None:
    every = list(range(count))
    for seed in range(3 * count):
        drawn = [set(in_turn(every, seed + later)) for later in range(days(count))]
        assert set.union(*drawn) == set(every)
        assert {len(one) for one in drawn} == {min(PER_DAY, count)}


def test_a_few_days_are_few() -> None:
    assert days(len(OPTIONAL)) <= 5


def test_sets() -> None:
    assert wanted("all", 1) == [*METAS] and wanted("none", 1) == []
    assert wanted("required", 1) == [meta for meta in METAS if meta.required]
    assert wanted("rotation", 5) == wanted("rotation", 5), "it can be repeated"


def test_the_sample_of_each_machine_takes_turns_too() -> None:
    """Of several kernels of one machine in a run, the sample has one; on some day each is it."""
    machines = {"amd64": "x86", "i386": "x86"}

    def alike(metas: list[Meta], meta: Meta) -> list[str]:
        own = machines.get(meta.arch, meta.arch)
        return sorted(one.name for one in metas if machines.get(one.arch, one.arch) == own)

    chosen = set()
    for seed in _seeds(0, 4 * days(len(OPTIONAL)) ** 2):
        metas = wanted("rotation", seed)
        chosen |= {one_of(alike(metas, meta), seed, len(OPTIONAL)) for meta in metas}
    assert chosen == {meta.name for meta in TAKEN}


@pytest.mark.parametrize("shares", [1, 3, 10])
def test_each_share_of_each_kernels_tests_comes_up(shares: int) -> None:
    """Within as many rounds as there are shares."""
    count = len(OPTIONAL)
    seen = {
        (meta.name, number)
        for seed in _seeds(0, (shares + 1) * days(count))
        for meta in wanted("rotation", seed)
        for number in range(shares)
        if in_share(number, shares, seed, count)
    }
    assert seen == {(meta.name, number) for meta in TAKEN for number in range(shares)}


def test_days_follow_each_other() -> None:
    numbers = [day_of(seed) for seed in _seeds(0, 800)]
    assert [b - a for a, b in itertools.pairwise(numbers)] == [1] * 799
    assert [day_of(seed) for seed in (0, 7, 99_999_999)] == [0, 7, 99_999_999]
