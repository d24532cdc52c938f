# SPDX-License-Identifier: MIT
"""A call tree as a page's flame graph: the nodes that are wide enough to be drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.call_tree import Tree

__all__ = ["flame"]

MIN_SHARE = 1 / 20_000
"""Share of the whole time that a call must take to be drawn."""
MAX_NODES = 1 << 16
"""Maximum nodes to draw: those that take the most."""


def flame(tree: Tree) -> Mapping[str, Any]:
    """Return the columns of the nodes that are drawn; ``left``: how many stacks within each are
    not, ``outside``: how many within none; ``whole``: nanoseconds of all."""
    total = tree.totals()
    whole = int(total[tree.parent < 0].sum())
    least = whole * MIN_SHARE
    if len(total) > MAX_NODES:
        least = max(least, float(np.partition(total, -MAX_NODES)[-MAX_NODES]))
    drawn = np.flatnonzero(total > least)  # a node's parent takes no less than it
    place = np.full(len(total) + 1, -1, np.int64)
    place[drawn] = np.arange(len(drawn))
    left = _left(tree, drawn)
    return {
        "function": tree.function[drawn],
        "parent": place[tree.parent[drawn]],
        "time": total[drawn],
        "own": tree.own[drawn],
        "hits": tree.hits[drawn],
        "left": left[:-1],
        "outside": int(left[-1]),
        "whole": whole,
    }


def _left(tree: Tree, drawn: NDArray[np.intp]) -> NDArray[np.int64]:
    """How many nodes within each drawn one are not drawn, nor within another that is; the last
    number is of those within none."""
    count = len(tree.parent)
    above = np.append(np.where(tree.parent < 0, count, tree.parent), count)
    above[drawn] = drawn
    while not np.array_equal(above, above[above]):
        above = above[above]
    inside = np.bincount(above[:count], minlength=count + 1)
    return np.append(inside[drawn] - 1, inside[count])
