# SPDX-License-Identifier: MIT
"""Putting the times of several traces on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.header import Header

__all__ = ["Clock", "clocks"]

MAX_TIME = 1 << 61
"""Maximum time in nanoseconds; beyond it the difference of two times would overflow."""
NEAR = 1_000_000_000
"""Tolerated clock difference between traces of one machine (nanoseconds)."""


@dataclass(frozen=True)
class Clock:
    """The ticks of one trace: ``origin`` is the tick that times count from, ``rate`` nanoseconds
    per tick, ``shift`` nanoseconds from the first trace's origin to this one's."""

    origin: int
    rate: float
    shift: int = 0

    def times(self, ticks: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Convert absolute ticks, uint64[n], to nanoseconds since the start, int64[n]."""
        since = (ticks - np.uint64(self.origin)).view(np.int64)  # wraps, like the counter
        exact = np.rint(since * self.rate) + self.shift
        return np.asarray(np.clip(exact, -MAX_TIME, MAX_TIME).astype(np.int64))


def clocks(headers: Sequence[Header]) -> list[Clock]:
    """Make a clock for each trace, with times since the first began.

    Traces of one machine and boot share a counter, which orders them to the tick; others are
    aligned by the time of day. Without a known rate a tick is a nanosecond.
    """
    if not all(header.hz for header in headers):
        return [Clock(header.ticks, 1.0) for header in headers]
    first = min(headers, key=lambda header: header.realtime)
    rates = [1e9 / header.hz for header in headers]
    shared = all(_agree(first, header) for header in headers)
    if shared:
        origin = min(header.ticks for header in headers)
        return [Clock(origin, 1e9 / first.hz)] * len(headers)
    return [
        Clock(header.ticks, rate, min(header.realtime - first.realtime, MAX_TIME))
        for header, rate in zip(headers, rates, strict=True)
    ]


def _agree(first: Header, other: Header) -> bool:
    """Return whether the counter and the time of day advanced equally between the two starts."""
    by_ticks = (other.ticks - first.ticks) * 1e9 / first.hz
    by_day = other.realtime - first.realtime
    return abs(other.hz - first.hz) <= first.hz / 100 and abs(by_ticks - by_day) <= NEAR
