# SPDX-License-Identifier: MIT
"""The shortest and the longest call of each function, of those that returned."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.window import Window

__all__ = ["Extremes"]

NEVER = int(np.iinfo(np.int64).max)


class Extremes:
    """Durations of calls that returned within the time window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._least = self._most = np.empty(0, np.int64)

    def add(self, rows: Rows) -> None:
        """Count a batch."""
        ended = among(rows.kind, (Kind.LEAVE, Kind.RETURN)) & (rows.duration >= 0)
        if not self._window.is_whole:
            begin, end = self._window.span
            ended &= (rows.time >= begin) & (rows.time <= end)
        function, duration = rows.function[ended].astype(np.intp), rows.duration[ended]
        more = max(int(function.max(initial=-1)) + 1 - len(self._least), 0)
        self._least = np.pad(self._least, (0, more), constant_values=NEVER)
        self._most = np.pad(self._most, (0, more), constant_values=UNKNOWN)
        np.minimum.at(self._least, function, duration)
        np.maximum.at(self._most, function, duration)

    def of(self, function: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the least and the most nanoseconds of these functions, int64[f], UNKNOWN where
        none returned."""
        more = max(int(function.max(initial=-1)) + 1 - len(self._least), 0)
        most = np.pad(self._most, (0, more), constant_values=UNKNOWN)[function]
        least = np.pad(self._least, (0, more))[function]
        return np.where(most < 0, UNKNOWN, least), most
