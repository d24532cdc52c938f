# SPDX-License-Identifier: MIT
"""One function in the call tree: along which paths it is called, and what it calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.call_tree import Tree

__all__ = ["Around", "callees", "callers", "outermost"]


@dataclass(frozen=True)
class Around:
    """n nodes, each behind its parent. ``parent`` intp[n], -1 for the function itself; ``function``
    int64[n]; ``hits`` and ``time`` int64[n]: nanoseconds."""

    parent: NDArray[np.intp]
    function: NDArray[np.int64]
    hits: NDArray[np.int64]
    time: NDArray[np.int64]

    def lines(self) -> list[tuple[int, int]]:
        """Node and level of each, every node before what is inside it, by descending time there."""
        inner: dict[int, list[int]] = {}
        for node in np.lexsort((-self.function, self.time)).tolist():
            inner.setdefault(int(self.parent[node]), []).append(node)
        pending = [(node, 0) for node in inner.get(-1, ())]
        out = []
        while pending:
            node, level = pending.pop()
            out.append((node, level))
            pending += [(child, level + 1) for child in inner.get(node, ())]
        return out


def outermost(tree: Tree, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Nodes of the chosen functions, bool[f], that are in no other call of a chosen one, intp[m].

    What a recursive function spends in itself is part of these already.
    """
    mine = chosen[tree.function]
    front = np.flatnonzero(tree.parent < 0)
    found = []
    children = _Children(tree)
    while len(front):
        found.append(front[mine[front]])
        front = children.of(front[~mine[front]])
    return np.concatenate(found) if found else np.empty(0, np.intp)


def callers(tree: Tree, nodes: NDArray[np.intp]) -> Around:
    """Follow the ways to nodes outwards: inside each function are those that called it."""
    sums, total = _Sums(), tree.totals()
    at, group = nodes, np.full(len(nodes), -1, np.intp)
    hits, time = tree.hits[nodes], total[nodes]
    while len(at):
        group = sums.add(group, tree.function[at], hits, time)
        outer = tree.parent[at]
        there = outer >= 0
        at, group, hits, time = outer[there], group[there], hits[there], time[there]
    return sums.whole()


def callees(tree: Tree, nodes: NDArray[np.intp]) -> Around:
    """Join the trees below nodes: inside each function are those that it called."""
    sums, total, children = _Sums(), tree.totals(), _Children(tree)
    place = np.full(len(tree.parent), -1, np.intp)
    at, group = nodes, np.full(len(nodes), -1, np.intp)
    while len(at):
        place[at] = sums.add(group, tree.function[at], tree.hits[at], total[at])
        at = children.of(at)
        group = place[tree.parent[at]]
    return sums.whole()


class _Children:
    """Finds what is inside nodes."""

    def __init__(self, tree: Tree) -> None:
        self._order = np.argsort(tree.parent, kind="stable")
        self._parent = tree.parent[self._order]

    def of(self, nodes: NDArray[np.intp]) -> NDArray[np.intp]:
        """All children of the nodes, intp[m]."""
        first = np.searchsorted(self._parent, nodes)
        count = np.searchsorted(self._parent, nodes, side="right") - first
        before = np.cumsum(count) - count
        index = np.repeat(first - before, count) + np.arange(count.sum())
        return np.asarray(self._order[index], np.intp)


class _Sums:
    """Nodes as they are added, those of one function in one place together."""

    def __init__(self) -> None:
        self._size = 0
        self._columns: list[tuple[NDArray[np.int64], ...]] = []

    def add(
        self,
        group: NDArray[np.intp],
        function: NDArray[np.int64],
        hits: NDArray[np.int64],
        time: NDArray[np.int64],
    ) -> NDArray[np.intp]:
        """Return each one's node, intp[m]; ``group`` is the node that it is inside of."""
        code = (group + 1) << 32 | function
        distinct, index = np.unique(code, return_inverse=True)
        sums = np.zeros((2, len(distinct)), np.int64)
        np.add.at(sums[0], index, hits)
        np.add.at(sums[1], index, time)
        self._columns.append(((distinct >> 32) - 1, distinct & 0xFFFF_FFFF, sums[0], sums[1]))
        first, self._size = self._size, self._size + len(distinct)
        return np.asarray(first + index, np.intp)

    def whole(self) -> Around:
        """All nodes."""
        if not self._columns:
            none = np.empty(0, np.int64)
            return Around(none, none, none, none)
        parent, *others = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        return Around(parent.astype(np.intp), *others)
