# SPDX-License-Identifier: MIT
"""Which part of the tests `make test` runs, and how to run the same part again.

Of a test that takes time it runs a sample of its cases, in which every value that many of them
share occurs; of the cases that slow.txt names, some in each folder; tests that can do with less ask
``scaled`` how far to go. The sample is another one each day, and FTPATCH_SEED chooses it. Which
inputs fuzzers and hypothesis draw is another matter: what a change has to pass may not depend on
luck, so they are the same each time; FTPATCH_FUZZ chooses others, as `make fuzz` does all the time.
FTPATCH_FULL in the environment asks for everything: ``1`` for all cases, ``rest`` for those that
the sample of this seed leaves out, but of one test no more than MAX_REST, and of the slow cases
SLOW_REST, which are others each day; and ``product`` for the whole product of forms of traced
programs besides, and for the hours of tests that go on as long as one likes (`make test-matrix`,
`make test-processes`).
"""

from __future__ import annotations

import datetime
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

__all__ = ["FULL", "FUZZ", "PRODUCT", "SEED", "SLOW", "describe", "sample", "scaled", "split"]

MODES = ("", "1", "rest", "product")
MODE = os.environ.get("FTPATCH_FULL", "")
FULL = MODE != ""
PRODUCT = MODE == "product"
# The workers of one run share a seed, though midnight may come between their starts.
TODAY = os.environ.setdefault("FTPATCH_TODAY", datetime.date.today().strftime("%Y%m%d"))
SEED = int(os.environ.get("FTPATCH_SEED") or TODAY)
FUZZ = int(os.environ.get("FTPATCH_FUZZ") or 1)
"""Seed of what fuzzers and hypothesis draw."""
SHARE = 1 / 24
"""Of a test's cases; what as many of them share must occur."""
SLOW_SHARE = 1 / 24
"""Of a folder's slow cases."""
MAX_REST = 40
"""Cases of one test that takes time, of all that the sample has left out."""
SLOW_REST = 1 / 4
"""Of a folder's slow cases, of all that the sample has left out."""
FOLDERS = {"tmp_path", "tmp_path_factory"}
"""Fixtures of tests that take time: what writes no file and draws no examples takes none."""
SLOW = frozenset(Path(__file__).with_name("slow.txt").read_text().splitlines()[1:])
"""Tests of which one case takes about a second or more."""
WHOLE = ("tests/house/", "tests/kernels/", "golden")
"""Parts of the names of files of which only slow tests are sampled."""


def describe() -> str:
    """Name the part that runs, in the words that choose it."""
    full, drawn = f" FTPATCH_FULL={MODE}" * FULL, f" FTPATCH_FUZZ={FUZZ}" * (FUZZ != 1)
    return f"FTPATCH_SEED={SEED}{full}{drawn}"


def scaled(full: int, part: int, product: int = 0) -> int:
    """Choose between the size of a test in full and in a sample, and in the product if that is
    another one."""
    if PRODUCT and product:
        return product
    return full if FULL else part


def sample(cases: Sequence[Iterable[object]], salt: str = "") -> list[int]:
    """Choose a share of the cases, each given by its values, and more until every value that such
    a share of them has, or two of a few, occurs. Return their indices."""
    rng = random.Random(f"{SEED} {salt}")
    values = [set(case) for case in cases]
    counts = Counter(value for case in values for value in case)
    many = max(SHARE * len(cases), 2)
    shared = {value for value, count in counts.items() if count >= many}
    chosen: list[int] = []
    rest = rng.sample(range(len(cases)), len(cases))
    while shared:
        best = max(rest, key=lambda index: len(values[index] & shared))
        chosen.append(best)
        rest.remove(best)
        shared -= values[best]
    more = math.ceil(SHARE * len(cases)) - len(chosen)
    return sorted(chosen + rest[: max(more, 0)])


def _values(item: pytest.Function) -> set[object]:
    """Each parameter's value, by its place in its list, and each word of the case's name: many
    parameters are several in one, such as x86_64-pie-O2."""
    if not hasattr(item, "callspec"):
        return set()
    return {*item.callspec.indices.items(), *item.callspec.id.split("-")}


def split(
    items: Sequence[pytest.Item], named: Iterable[str] = ()
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Divide collected tests into those to run and those to leave out. Tests that are ``named``
    with :: on the command line are run."""
    if MODE not in MODES:
        raise pytest.UsageError(f"FTPATCH_FULL={MODE}: it takes 1, rest or product")
    if MODE not in ("", "rest") or any("::" in name for name in named):
        return list(items), []
    groups: dict[str, list[pytest.Function]] = defaultdict(list)
    slow: dict[Path, list[pytest.Function]] = defaultdict(list)
    for item in items:
        name = item.nodeid.partition("[")[0]
        if not isinstance(item, pytest.Function):
            continue
        if name in SLOW:
            slow[item.path.parent].append(item)
        elif any(part in name for part in WHOLE):
            continue
        elif hasattr(item, "callspec") and _takes_time(item):
            groups[name].append(item)
    left = set[pytest.Item]()
    for name, group in groups.items():
        chosen = {group[index] for index in sample([_values(item) for item in group], name)}
        left |= set(group) - chosen
    for folder, group in slow.items():
        # No more than their share: what they have in common occurs on another day.
        rng = random.Random(f"{SEED} {folder.name}")
        left |= set(group) - set(rng.sample(group, math.ceil(SLOW_SHARE * len(group))))
    if MODE == "rest":
        left = {item for item in items if item not in left and not _is_scaled(item)}
        left |= _more(item for item in items if item not in left)
    return [item for item in items if item not in left], [item for item in items if item in left]


def _more(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The cases of each test that are more than an hour has time for."""
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    slow: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name in SLOW:
            slow[item.path.parent.name].append(item)
        elif isinstance(item, pytest.Function) and _takes_time(item):
            groups[name].append(item)
    out = set[pytest.Item]()
    for name, group in slow.items():
        rng = random.Random(f"{SEED} more {name}")
        out |= set(rng.sample(group, math.floor((1 - SLOW_REST) * len(group))))
    for name, group in groups.items():
        rng = random.Random(f"{SEED} more {name}")
        out |= set(rng.sample(group, max(len(group) - MAX_REST, 0)))
    return out


def _takes_time(item: pytest.Function) -> bool:
    return bool(FOLDERS & {*item.fixturenames}) or _draws(item)


def _draws(item: pytest.Item) -> bool:
    """Whether hypothesis draws a test's examples; in full it draws more."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def _is_scaled(item: pytest.Item) -> bool:
    return _draws(item) or item.get_closest_marker("scaled") is not None
