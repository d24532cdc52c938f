# SPDX-License-Identifier: MIT
"""The calls of a trace as a tree, with one node per call path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.open_frames import OpenFrames
from ftpatch.trace.rows import UNKNOWN, Kind, Rows
from ftpatch.trace.totals import parents, spent
from ftpatch.trace.window import Window

__all__ = ["MAX_DEPTH", "Tree", "grow"]

MAX_DEPTH = 1024
"""Maximum levels of the tree. Deeper calls count towards their ancestor at that level."""
MAX_NODES = 1 << 20
"""Maximum nodes of the tree. A call that would need another counts towards its caller."""
FEW = 32
"""Minimum rows of a level for which grouping equal ones pays off."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """n nodes, parents first. ``parent`` int64[n], -1 for outermost calls; ``function`` int64[n];
    ``hits`` int64[n]; ``own`` int64[n]: nanoseconds excluding children. ``merged``: how many calls
    exceeded the node limit."""

    parent: NDArray[np.int64]
    function: NDArray[np.int64]
    hits: NDArray[np.int64]
    own: NDArray[np.int64]
    merged: int = 0

    def totals(self) -> NDArray[np.int64]:
        """Nanoseconds of each node including its descendants, int64[n]."""
        sums = self.own.tolist()
        for node in range(len(sums) - 1, -1, -1):
            if self.parent[node] >= 0:
                sums[self.parent[node]] += sums[node]
        return np.array(sums, np.int64)

    def stacks(self, key: Callable[[int], str] | None = None) -> Iterator[tuple[int, list[int]]]:
        """Each node with the functions from the outermost to its own, depth first, those of one
        caller by the ``key`` of their functions. The list is the same one each time."""
        function, stack = self.function.tolist(), list[int]()
        within: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parent.tolist()):
            within.setdefault(parent, []).append(node)
        pending = [(-1, 0)]
        while pending:
            node, level = pending.pop()
            if node >= 0:
                stack[level - 1 :] = [function[node]]
                yield node, stack
            inner = within.get(node, [])
            if key is not None:
                inner = sorted(inner, key=lambda child: key(function[child]))
            pending += [(child, level + 1) for child in reversed(inner)]


def grow(batches: Iterable[Rows], window: Window, roots: NDArray[np.int64] | None = None) -> Tree:
    """Build the tree of all calls in the time window. ``roots`` int64[t]: for each thread a
    function that its outermost calls are below of."""
    nodes = _Nodes(roots)
    hits, own = np.zeros(0), np.zeros(0)
    for rows in batches:
        around = parents(rows)
        node = nodes.of(rows, around)
        size = len(nodes.parent)
        hits, own = (np.pad(column, (0, size - len(column))) for column in (hits, own))
        part = spent(rows, window)
        entered = part.entered[node[part.entered] >= 0]
        hits += np.bincount(node[entered], minlength=size)
        inside = (part.begun >= 0) & (node[part.begun] >= 0)
        begun, time = part.begun[inside], part.time[inside]
        own += np.bincount(node[begun], time, minlength=size)
        inner = (around[begun] >= 0) & (node[around[begun]] >= 0)
        own -= np.bincount(node[around[begun[inner]]], time[inner], minlength=size)
    bound = float(1 << 62)
    return Tree(
        parent=np.array(nodes.parent, np.int64),
        function=np.array(nodes.function, np.int64),
        hits=hits.astype(np.int64),
        own=np.clip(own, 0, bound).astype(np.int64),
        merged=nodes.too_many,
    )


class _Nodes:
    """Numbers nodes, and keeps those of each thread's open frames."""

    def __init__(self, roots: NDArray[np.int64] | None) -> None:
        self._roots = roots
        self.parent: list[int] = []
        self.function: list[int] = []
        self.too_many = 0
        self._known: dict[tuple[int, int], int] = {}
        self._open = OpenFrames()

    def of(self, rows: Rows, around: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the node of each row that enters a frame, int64[n], UNKNOWN for others."""
        node = self._open.column(rows)
        enter = np.flatnonzero(rows.kind == Kind.ENTER)
        level = rows.level[enter]
        enter = enter[np.argsort(level, kind="stable")]
        bounds = np.flatnonzero(np.diff(rows.level[enter])) + 1
        for part in np.split(enter, bounds) if len(enter) else ():
            outer = around[part]
            parent = np.where(outer >= 0, node[outer], self._below(rows.thread[part]))
            if rows.level[part[0]] >= MAX_DEPTH:
                node[part] = parent
            else:
                node[part] = self._number(parent, rows.function[part])
        self._open.keep(rows, node)
        return node

    def _below(self, thread: NDArray[np.int32]) -> NDArray[np.int64]:
        """The parents of outermost calls."""
        if self._roots is None:
            return np.full(len(thread), UNKNOWN, np.int64)
        root = self._roots[thread]
        return self._number(np.full(len(root), UNKNOWN, np.int64), root)

    def _number(
        self, parent: NDArray[np.int64], function: NDArray[np.integer]
    ) -> NDArray[np.int64]:
        if len(parent) < FEW:
            pairs = zip(parent.tolist(), function.tolist(), strict=True)
            return np.array([self._one(*pair) for pair in pairs], np.int64)
        code = (parent + 1) << 32 | function
        distinct, index = np.unique(code, return_inverse=True)
        pairs = zip(((distinct >> 32) - 1).tolist(), (distinct & 0xFFFF_FFFF).tolist(), strict=True)
        return np.asarray(np.array([self._one(*pair) for pair in pairs], np.int64)[index])

    def _one(self, parent: int, function: int) -> int:
        number = self._known.get((parent, function))
        if number is None:
            if len(self.parent) >= MAX_NODES:
                self.too_many += 1
                return parent
            number = self._known[parent, function] = len(self.parent)
            self.parent.append(parent)
            self.function.append(function)
        return number
