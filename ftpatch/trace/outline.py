# SPDX-License-Identifier: MIT
"""A tree of which parts are unfolded: the nodes that are seen, in the order of lines."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["Outline"]


class Outline:
    """n nodes: ``parent`` int64[n], -1 for roots; ``function``, ``hits``, ``time`` int64[n]. Those
    inside one node stand by descending time. ``shown`` intp[m]: the nodes that are seen, in order;
    at first the roots alone."""

    def __init__(
        self,
        parent: NDArray[np.int64],
        function: NDArray[np.int64],
        hits: NDArray[np.int64],
        time: NDArray[np.int64],
    ) -> None:
        self.parent, self.function = parent, function
        self.hits, self.time = hits, time
        self._order = np.lexsort((function, -time, parent))
        self._outer = parent[self._order]
        self._unfolded = np.zeros(len(parent), bool)
        self.shown = self._inside(-1)
        self.level = np.zeros(len(parent), np.int32)
        for level, front in enumerate(self._fronts):
            self.level[front] = level

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def whole(self) -> int:
        """Time of all roots."""
        return int(self.time[self._inside(-1)].sum())

    def children(self, node: int) -> int:
        """Number of nodes inside one."""
        return len(self._inside(node))

    def is_unfolded(self, node: int) -> bool:
        """Return whether what is inside a node is seen."""
        return bool(self._unfolded[node])

    def unfold(self, line: int) -> None:
        """Show what is inside the node of a line."""
        node = int(self.shown[line])
        inside = self._inside(node)
        if self._unfolded[node] or not len(inside):
            return
        self._unfolded[node] = True
        self.shown = np.insert(self.shown, line + 1, inside)

    def fold(self, line: int) -> None:
        """Hide everything inside the node of a line."""
        node = int(self.shown[line])
        after = self.level[self.shown[line + 1 :]] <= self.level[node]
        stop = line + 1 + (int(np.argmax(after)) if after.any() else len(after))
        self._unfolded[self.shown[line:stop]] = False
        self.shown = np.delete(self.shown, slice(line + 1, stop))

    def line_of(self, node: int) -> int:
        """The line of a node; it is shown if it was not."""
        ways = []
        outer = int(self.parent[node])
        while outer >= 0:
            ways.append(outer)
            outer = int(self.parent[outer])
        for one in reversed(ways):
            self.unfold(int(np.flatnonzero(self.shown == one)[0]))
        return int(np.flatnonzero(self.shown == node)[0])

    def outer_line(self, line: int) -> int:
        """The line of the node around that of a line; the same for a root."""
        outer = int(self.parent[self.shown[line]])
        return line if outer < 0 else int(np.flatnonzero(self.shown == outer)[0])

    def next(self, line: int, chosen: NDArray[np.bool_], *, back: bool = False) -> int | None:
        """The line of the next node of chosen functions, bool[f], also of those in folded ones; it
        goes on at the other end. None if there is none."""
        nodes = np.flatnonzero(chosen[self.function])
        if not len(nodes):
            return None
        nodes = nodes[np.argsort(self._rank[nodes])]
        rank = self._rank[self.shown[line]]
        at = int(np.searchsorted(self._rank[nodes], rank, side="left" if back else "right"))
        return self.line_of(int(nodes[at - 1 if back else at % len(nodes)]))

    def _inside(self, node: int) -> NDArray[np.intp]:
        first, stop = np.searchsorted(self._outer, [node, node + 1])
        return self._order[first:stop]

    @cached_property
    def _fronts(self) -> list[NDArray[np.intp]]:
        """The nodes of each level, intp[m]."""
        fronts = [self._inside(-1)]
        while len(fronts[-1]):
            nodes = fronts[-1]
            first = np.searchsorted(self._outer, nodes)
            count = np.searchsorted(self._outer, nodes, side="right") - first
            before = np.cumsum(count) - count
            index = np.repeat(first - before, count) + np.arange(count.sum())
            fronts.append(self._order[index])
        return fronts[:-1]

    @cached_property
    def _rank(self) -> NDArray[np.int64]:
        """The line that each node would have if all were unfolded, int64[n]."""
        size = np.ones(len(self.parent), np.int64)
        for front in reversed(self._fronts[1:]):
            np.add.at(size, self.parent[front], size[front])
        before = np.zeros(len(self.parent), np.int64)
        sums = np.cumsum(size[self._order]) - size[self._order]
        first = np.searchsorted(self._outer, self._outer)
        before[self._order] = sums - sums[first] if len(sums) else sums
        rank = before.copy()
        for front in self._fronts[1:]:
            rank[front] += rank[self.parent[front]] + 1
        return rank
