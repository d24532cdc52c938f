# SPDX-License-Identifier: MIT
"""Two runs beside each other: hits and times of each function in both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.totals import Totals

__all__ = ["Compared", "Measure", "compare"]


class Measure:
    """Columns of sums."""

    HITS = 0
    TIME = 1
    OWN = 2


@dataclass(frozen=True)
class Compared:
    """f functions that either run called, by name. ``before`` and ``after`` int64[f, 3]: a column
    for each Measure, nanoseconds but for hits; zeros where the run did not call the function."""

    names: list[str]
    before: NDArray[np.int64]
    after: NDArray[np.int64]

    def order(self, measure: int) -> NDArray[np.intp]:
        """Functions by descending difference of a measure, intp[f]: what became slower is first."""
        difference = self.after[:, measure] - self.before[:, measure]
        return np.argsort(-difference, kind="stable")


def compare(before: tuple[Totals, Sequence[str]], after: tuple[Totals, Sequence[str]]) -> Compared:
    """Compare two runs, each with the names of its functions. Names alone decide: functions of one
    name count together, since addresses change when a program is built again."""
    sums = [_by_name(totals, names) for totals, names in (before, after)]
    every = sorted(sums[0].keys() | sums[1].keys())
    none = np.zeros(3, np.int64)
    columns = (np.array([one.get(name, none) for name in every], np.int64) for one in sums)
    return Compared(every, *(column.reshape(len(every), 3) for column in columns))


def _by_name(totals: Totals, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    distinct = sorted({names[function] for function in totals.function.tolist()})
    number = {name: index for index, name in enumerate(distinct)}
    index = np.array([number[names[function]] for function in totals.function.tolist()], np.intp)
    sums = np.zeros((len(distinct), 3), np.int64)
    np.add.at(sums, index, np.stack([totals.hits, totals.time, totals.own], axis=1))
    return dict(zip(distinct, sums, strict=True))
