# SPDX-License-Identifier: MIT
"""Selecting the rows that the window of a report shows.

Each step takes the rows that the one before it leaves: the chosen functions, as if no others had
been traced; those below a function; what triggers switch on; long calls; levels; the first calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.below import depths, inside
from ftpatch.trace.first_calls import first_calls
from ftpatch.trace.long_calls import long_calls
from ftpatch.trace.pairs import levels
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Recording
from ftpatch.trace.switches import switched

__all__ = ["narrowed"]

Read = Callable[[], Iterable[Rows]]
Choose = Callable[[Rows], NDArray[np.bool_]]


def narrowed(read: Read, recording: Recording, *, named: bool = True) -> Iterator[Rows]:
    """Yield what the recording's window shows. ``read`` starts reading all rows: more than once,
    where a filter has to know what comes later. ``named``: leave out functions by name, too."""
    window, functions = recording.window, recording.functions

    def below(rows: Rows) -> NDArray[np.bool_]:
        return window.below.of(functions)[rows.function]

    if named and window.globs:
        read = partial(_selected, read, lambda rows: window.keeps(functions)[rows.function])
    every = read
    if window.only:
        read = partial(_selected, read, lambda rows: inside(rows, below(rows)))
    if window.triggers:
        states = partial(window.switches, functions)
        read = partial(switched, every, states, read, begins_on=window.begins_on)
        read = partial(_leveled, read)
    if window.least is not None:
        read = partial(_leveled, partial(_long, read, window.least))
    depth = window.depth
    if depth is not None and window.only:
        read = partial(_selected, read, lambda rows: depths(rows, below(rows)) < depth)
    elif depth is not None:
        read = partial(_selected, read, lambda rows: rows.level < depth)
    if window.calls is not None:
        threads = len(recording.tids)
        read = partial(_leveled, partial(first_calls, read, window.calls, window.span, threads))
    return iter(read())


def _selected(read: Read, choose: Choose) -> Iterator[Rows]:
    for rows in read():
        kept = choose(rows)
        yield rows if kept.all() else _level(rows.take(kept))


def _leveled(read: Read) -> Iterator[Rows]:
    return map(_level, read())


def _level(rows: Rows) -> Rows:
    """Count levels again."""
    return rows.but(level=levels(rows)) if len(rows) else rows


def _long(read: Read, least: int) -> Iterator[Rows]:
    return long_calls(read(), least)
