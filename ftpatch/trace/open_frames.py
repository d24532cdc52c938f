# SPDX-License-Identifier: MIT
"""Frames that stay open from one batch of rows to the next, each with a number of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.pairs import segments
from ftpatch.trace.rows import UNKNOWN, Kind, Rows

__all__ = ["OpenFrames"]


class OpenFrames:
    """The numbers of each thread's open frames."""

    def __init__(self) -> None:
        self._open: dict[int, NDArray[np.int64]] = {}

    def column(self, rows: Rows) -> NDArray[np.int64]:
        """The numbers of frames that were open before, int64[n]; UNKNOWN for other rows."""
        out = np.full(len(rows), UNKNOWN, np.int64)
        before = np.flatnonzero(rows.kind == Kind.OPEN)
        for part in _by_thread(rows, before):
            # With very many frames, the outermost are forgotten (match.MAX_OPEN).
            held = self._open.get(int(rows.thread[part[0]]), out[:0])[-len(part) :]
            out[part[len(part) - len(held) :]] = held
        return out

    def keep(self, rows: Rows, column: NDArray[np.int64]) -> None:
        """Keep the numbers of frames that stay open."""
        for thread in rows.thread[segments(rows.thread)].tolist():
            self._open.pop(thread, None)
        still = np.flatnonzero((rows.kind <= Kind.ENTER) & (rows.pair < 0))
        for part in _by_thread(rows, still):
            self._open[int(rows.thread[part[0]])] = column[part]


def _by_thread(rows: Rows, index: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Split rows at thread boundaries."""
    if not len(index):
        return []
    return list(np.split(index, segments(rows.thread[index])[1:]))
