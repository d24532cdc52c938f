# SPDX-License-Identifier: MIT
"""Which kernels a day's run takes: all that are required, and a few of the others in turn.

    day     1          2          3          4          ...
    takes   a b        c d        e a        b c        of a b c d e, two each day

Of tests that come in shares, a kernel's runs have one, and the next the next time round.

So each comes up within `days` of one another, and what a run costs does not grow with their number.
The day is FTPATCH_SEED's, as `make test` has it: a date, or any other number.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["PER_DAY", "day_of", "days", "in_share", "in_turn", "one_of"]

T = TypeVar("T")
PER_DAY = 2
"""Optional kernels of a run."""


def day_of(seed: int) -> int:
    """Number of a day: dates (20250131) follow each other without gaps; other seeds count
    themselves."""
    try:
        return datetime.datetime.strptime(str(seed), "%Y%m%d").toordinal()
    except ValueError:
        return seed


def days(count: int) -> int:
    """Days after which each of so many has come up."""
    return math.ceil(count / PER_DAY)


def in_turn(every: Sequence[T], seed: int) -> list[T]:
    """Those of a day, in their order."""
    first = day_of(seed) * PER_DAY
    taken = {(first + number) % len(every) for number in range(min(PER_DAY, len(every)))}
    return [one for number, one in enumerate(every) if number in taken]


def one_of(every: Sequence[T], seed: int, count: int) -> T:
    """One of them, the next each time that ``count`` optional kernels have all come up."""
    return every[day_of(seed) // days(count) % len(every)]


def in_share(number: int, shares: int, seed: int, count: int) -> bool:
    """Whether a test of this number is in the share of a day, where ``count`` optional kernels take
    turns."""
    return day_of(seed) // days(count) % shares == number % shares
