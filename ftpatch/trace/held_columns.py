# SPDX-License-Identifier: MIT
"""Events as columns that wait for others, which may precede them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["HeldColumns"]


class HeldColumns:
    """``count`` columns of events, of which one is their ``time``."""

    def __init__(self, count: int, *, time: int) -> None:
        self._time = time
        self._held = np.empty((count, 0), np.int64)

    def add(self, columns: NDArray[np.int64]) -> None:
        """Add events, int64[count, n]."""
        self._held = np.concatenate([self._held, columns], axis=1)

    def ready(self, until: int) -> NDArray[np.int64]:
        """Take out the events before ``until``, int64[count, n], by time; of those of one time the
        one that was added first is the first."""
        ready = self._held[self._time] < until
        out = self._held[:, ready]
        self._held = self._held[:, ~ready]
        return out[:, np.argsort(out[self._time], kind="stable")]
