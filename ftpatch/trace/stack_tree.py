# SPDX-License-Identifier: MIT
"""The stacks of hits, or of accesses, as a tree, whose numbers are these instead of
nanoseconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.core.columns import addresses
from ftpatch.trace.accesses import Accesses
from ftpatch.trace.by_process import process_name
from ftpatch.trace.call_frames import Frame, Placed, StackTable
from ftpatch.trace.call_tree import Tree
from ftpatch.trace.hits import Hits
from ftpatch.trace.source import Recording

__all__ = ["StackCounts", "access_counts", "hit_counts", "stack_tree"]

STEP = 1 << 18
"""Hits read at a time."""
MORE = "..."
"""Stands for calls that are not known."""


@dataclass(frozen=True, kw_only=True)
class StackCounts:
    """The number of times that each stack was there. ``names`` of probes or watches, ``returns``:
    those of them whose function has returned; ``counts`` by number of these and of the stack in
    ``stacks``, -1 for ones that are not known."""

    names: Sequence[str]
    returns: Mapping[int, Placed]
    counts: Mapping[tuple[int, int], int]
    stacks: StackTable | None


def stack_tree(counted: StackCounts, recording: Recording) -> Tree:
    """The events of each stack, from the outermost call on: those of each probe or watch, and of
    each process, by themselves if there are several."""
    numbers = _Numbers(recording)
    several = len({point for point, _ in counted.counts}) > 1
    parent, function, own = list[int](), list[int](), list[int]()
    known: dict[tuple[int, int], int] = {}
    for (point, number), count in counted.counts.items():
        path = _path(counted, numbers, recording, point, number, several=several)
        node = -1
        for one in path:
            inner = known.setdefault((node, one), len(parent))
            if inner == len(parent):
                parent.append(node)
                function.append(one)
                own.append(0)
            node = inner
        own[node] += count
    tree = Tree(
        parent=np.array(parent, np.int64),
        function=np.array(function, np.int64),
        hits=np.zeros(len(own), np.int64),
        own=np.array(own, np.int64),
    )
    tree.hits[:] = tree.totals()
    return tree


def _path(
    counted: StackCounts,
    numbers: _Numbers,
    recording: Recording,
    point: int,
    number: int,
    *,
    several: bool,
) -> list[int]:
    """The functions of a stack, from the outermost call on."""
    name = [numbers.named(counted.names[point])] if several else []
    if number < 0:
        return [*name, numbers.named(MORE)]
    stacks = counted.stacks
    assert stacks is not None
    stack = stacks.all[number]
    path = [numbers.named(process_name(recording.headers[stack.header]))]
    path = path if len(recording.headers) > 1 else []
    path += name
    path += [numbers.named(MORE)] if stack.cut else []
    path += [numbers.of(frame) for frame in reversed(stacks.frames(stack))]
    placed = counted.returns.get(point)
    return path + ([numbers.of(stacks.probed(stack, placed))] if placed else [])


def hit_counts(hits: Hits) -> StackCounts:
    """Count the hits of each probe that have each stack."""
    counts, stacks = Counter[tuple[int, int]](), None
    for first in range(0, len(hits), STEP):
        points = hits.point[first : first + STEP]
        for point in np.unique(points).tolist():
            group = hits.group(point, np.flatnonzero(points == point) + first)
            if group.stack is None:
                continue
            stacks = group.stacks
            distinct, number = np.unique(group.stack, return_counts=True)
            for one, count in zip(distinct.tolist(), number.tolist(), strict=True):
                counts[point, one] += count
    return StackCounts(
        names=[point.name for point in hits.points],
        returns={row: point for row, point in enumerate(hits.points) if point.returns},
        counts=counts,
        stacks=stacks,
    )


def access_counts(accesses: Accesses) -> StackCounts:
    """Count the accesses to each variable that have each stack. Where SIGTRAP was blocked, it is
    not known."""
    counts, names = Counter[tuple[int, int]](), dict[str, int]()
    for access in accesses:
        variable = access.variable
        if variable.stack:
            number = names.setdefault(variable.line, len(names))
            counts[number, -1 if access.stack is None else access.stack] += 1
    return StackCounts(names=[*names], returns={}, counts=counts, stacks=accesses.stacks)


class _Numbers:
    """Numbers the functions of stacks, and makes them the recording's."""

    def __init__(self, recording: Recording) -> None:
        self._functions = recording.functions
        self._known: dict[tuple[int, str, str, int], int] = {}

    def named(self, name: str) -> int:
        """The number of what is no function."""
        key = 0, "", name, 0
        if key not in self._known:
            self._known[key] = len(self._functions)
            self._functions.stand_in(name)
        return self._known[key]

    def of(self, frame: Frame) -> int:
        """The number of a call's function."""
        if not frame.known:
            return self.named(f"[{frame.name}]" if frame.name else hex(frame.offset))
        program, functions = frame.program, self._functions
        key = id(program), frame.library, frame.name, frame.start
        if key not in self._known:
            self._known[key] = len(functions)
            functions.name.append(frame.name)
            functions.symbol.append(program.symbols.get(frame.name, frame.name))
            functions.address.append(frame.start)
            (place,) = program.lines.places(addresses(frame.start)) if program.lines else ("",)
            functions.source.append(place)
            functions.library.append(frame.library)
        return self._known[key]
