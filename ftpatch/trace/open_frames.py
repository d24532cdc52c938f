# SPDX-License-Identifier: MIT
"""Frames that stay open from one batch of rows to the next, each with a number of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.pairs import segments
from ftpatch.trace.rows import Kind, Rows

__all__ = ["OpenFrames"]


class OpenFrames:
    """The numbers of each thread's open frames."""

    def __init__(self) -> None:
        self._open: dict[int, NDArray[np.int64]] = {}

    def fill(self, rows: Rows, number: NDArray[np.int64]) -> None:
        """Put the numbers of frames that were open before into ``number``, int64[n]."""
        for part in _by_thread(rows, np.flatnonzero(rows.kind == Kind.OPEN)):
            # With very many frames, the outermost are forgotten (match.MAX_OPEN).
            number[part] = self._open[int(rows.thread[part[0]])][-len(part) :]

    def keep(self, rows: Rows, number: NDArray[np.int64]) -> None:
        """Keep those of the frames that are still open behind these rows."""
        for thread in rows.thread[segments(rows.thread)].tolist():
            self._open.pop(thread, None)
        still = np.flatnonzero((rows.kind <= Kind.ENTER) & (rows.pair < 0))
        for part in _by_thread(rows, still):
            self._open[int(rows.thread[part[0]])] = number[part]


def _by_thread(rows: Rows, index: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Split rows at thread boundaries."""
    if not len(index):
        return []
    return list(np.split(index, segments(rows.thread[index])[1:]))
