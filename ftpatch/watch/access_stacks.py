# SPDX-License-Identifier: MIT
"""The stacks of accesses: behind an access's words, if its watch asks for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.layout import constants
from ftpatch.trace.decode import FUNC, FUNC_SHIFT, TYPE
from ftpatch.trace.reader import Opened
from ftpatch.trace.stack_copies import COPY_ROOM, copied_words, unwound
from ftpatch.trace.stacks import Stacks
from ftpatch.trace.unwind import EXACT
from ftpatch.watch.table import Told

__all__ = ["AccessStacks", "has_stacks", "stack_words"]

ACCESS = constants["EVENT_ACCESS"]
LATE = np.uint64(constants["TRACE_LATE"])
AT_ONCE = 1 << 12
"""Stacks read at a time."""
Block = NDArray[np.uint64]


def has_stacks(told: Sequence[Told | None]) -> bool:
    """Test whether any of a trace's watches records stacks."""
    return any(one is not None and one.watch.stack for one in told)


def stack_words(told: Sequence[Told | None], words: Block, before: int) -> NDArray[np.uint16]:
    """Return how many words of stacks follow each of ``words``, uint16[k, n], if it began an access
    to one of these watches, ``before`` other words."""
    out = np.zeros(words.shape, np.uint16)
    stacked = np.array([one is not None and one.watch.stack > 0 for one in told] + [False], bool)
    number = (words >> np.uint64(FUNC_SHIFT)) & np.uint64(FUNC)
    mine = stacked[np.minimum(number, np.uint64(len(told))).astype(np.intp)]
    chunk, at = np.nonzero(mine & (words & np.uint64(TYPE) == ACCESS))
    there = at + 1 + before < words.shape[1]
    chunk, at = chunk[there], at[there]
    out[chunk, at] = copied_words(words[chunk, at + 1 + before])
    return out


class AccessStacks:
    """The stacks of a recording's accesses; ``known`` has each different one."""

    def __init__(self, trace: Opened) -> None:
        self.known = Stacks(trace.recording)

    def numbers(
        self,
        told: Sequence[Sequence[Told | None]],
        words: Block,
        at: NDArray[np.intp],
        process: NDArray[np.int32],
        number: NDArray[np.uint32],
        before: int,
    ) -> NDArray[np.int64]:
        """Find the stacks of accesses, int64[m]: their numbers, -1 where there is none. ``words``:
        flat; ``at``: indices of their first words; ``number``: those of their processes' watches.

        An access that was late was elsewhere: the stack is not its own."""
        out = np.full(len(at), -1, np.int64)
        for mine in np.unique(process).tolist():
            for watch in np.unique(number[process == mine]).tolist():
                one = told[mine][watch]
                if one is None or not one.watch.stack:
                    continue
                rows = np.flatnonzero((process == mine) & (number == watch))
                rows = rows[words[at[rows] + before] & LATE == 0]
                for some in np.split(rows, range(AT_ONCE, len(rows), AT_ONCE)):
                    place = at[some, None] + 1 + before + np.arange(COPY_ROOM)
                    block = words[np.minimum(place, len(words) - 1)]
                    ip = words[at[some] + 1] | np.uint64(EXACT)
                    walked = unwound(self.known, mine, ip, block, one.watch.stack)
                    out[some] = self.known.number(mine, walked)
        return out
