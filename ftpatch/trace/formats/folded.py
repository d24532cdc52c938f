"""Folded stacks: one line for each way to a function, as flamegraph.pl and speedscope read them."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.trace.formats.style import Look
from ftpatch.trace.reader import Trace
from ftpatch.trace.tree import Tree

__all__ = ["folded"]


def folded(trace: Trace, tree: Tree, look: Look) -> Iterator[str]:
    """``main;parse;read 1200``: functions from the outermost inwards, and the nanoseconds that the
    last of them spent itself: 0 of what was called last before a crash."""
    # A semicolon separates functions, and Rust has it in the names of arrays.
    names = [name.replace(";", ":") for name in look.names(trace.functions)]
    called = [names[number] for number in tree.function.tolist()]
    own = tree.own.tolist()
    within: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parent.tolist()):
        within.setdefault(parent, []).append(node)
    pending = [(-1, 0)]
    stack: list[str] = []
    while pending:
        node, level = pending.pop()
        if node >= 0:
            stack[level - 1 :] = [called[node]]
            if own[node] or node not in within:
                yield f"{';'.join(stack)} {own[node]}\n"
        inner = sorted(within.get(node, ()), key=called.__getitem__, reverse=True)
        pending += [(child, level + 1) for child in inner]
