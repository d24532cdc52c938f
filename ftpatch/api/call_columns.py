# SPDX-License-Identifier: MIT
"""Calls as columns, with the arguments that they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import objects
from ftpatch.trace.open_frames import OpenFrames
from ftpatch.trace.rows import UNKNOWN, Kind, Rows

if TYPE_CHECKING:
    from ftpatch.trace.arguments import Argument
    from ftpatch.trace.source import EventSource

__all__ = ["Columns", "argument_columns", "call_columns", "plain"]

Columns = dict[str, NDArray[Any]]
"""1-D arrays of one length, by name."""
BEGINS = np.isin(list(Kind), [Kind.ENTER, Kind.POINT])
ENDS = np.isin(list(Kind), [Kind.LEAVE, Kind.UNWOUND, Kind.END, Kind.POINT])
"""By kind of row: whether a call begins there, and whether it is told there."""
WORDS = tuple(f"arg{number}" for number in range(1, 7))


def call_columns(source: EventSource) -> Columns:
    """One row for each call, by time; where arguments were recorded, with their words."""
    calls = _Calls(source)
    for rows in source.rows():
        calls.add(rows)
    order = calls.order()
    return calls.columns(order) | calls.words(order) | calls.values(order)


def argument_columns(source: EventSource, chosen: Callable[[], NDArray[np.bool_]]) -> Columns:
    """One row for each call of the ``chosen`` functions, bool[f], with a column for each of their
    parameters, or for each recorded word where their declaration is not known."""
    from ftpatch.trace.arguments import Arguments

    calls, decoder = _Calls(source, chosen), Arguments(source.recording)
    told: dict[int, list[Argument]] = {}
    for rows in source.rows():
        for row, number in calls.add(rows):
            found = decoder.of(rows, row)
            if found is not None:
                told[number] = found
    order = calls.order()
    out, values = calls.columns(order), calls.values(order)
    named: Columns = {}
    for at, number in enumerate(calls.number[order].tolist()):
        for place, one in enumerate(told.get(number, ()), 1):
            if one.value is None:
                continue
            name = one.name or f"arg{place}"
            name += "_value" * (name in out or name in values)
            if name not in named:
                named[name] = np.full(len(order), None, object)
            named[name][at] = one.value.data
    if len(told) < len(order):
        words = calls.words(order)
        bare = ~np.isin(calls.number[order], list(told))
        for name, column in words.items():
            held = named.setdefault(name, np.full(len(order), None, object))
            held[bare] = column.astype(object)[bare]
    return out | {name: plain(held) for name, held in named.items()} | values


def plain(held: NDArray[np.object_]) -> NDArray[Any]:
    """The same as numbers or booleans, where each is one and all have room."""
    kinds = set(map(type, held))
    if kinds in ({float}, {bool}):
        return held.astype(kinds.pop())
    if kinds and kinds != {int}:
        return held
    low, high = min(held, default=0), max(held, default=0)
    if low < -(1 << 63) or high >= 1 << (63 if low < 0 else 64):
        return held
    return held.astype(np.uint64 if high >= 1 << 63 else np.int64)


class _Calls:
    """Collects calls from batches of rows, each with a number of its own: by that, a call that ends
    in another batch than it began in finds what was recorded at its beginning."""

    def __init__(
        self, source: EventSource, chosen: Callable[[], NDArray[np.bool_]] | None = None
    ) -> None:
        self._source, self._chosen = source, chosen
        self._span = source.recording.window.span
        self._frames, self._begun = OpenFrames(), 0
        self._told: list[tuple[NDArray[Any], ...]] = []
        self._given: list[tuple[NDArray[np.int64], NDArray[np.uint64]]] = []

    def add(self, rows: Rows) -> Iterator[tuple[int, int]]:
        """Add a batch; the rows of chosen calls that have arguments, with the calls' numbers."""
        number = self._frames.column(rows)
        begin = np.flatnonzero(BEGINS[rows.kind])
        number[begin] = self._begun + np.arange(len(begin))
        self._begun += len(begin)
        self._frames.keep(rows, number)
        begin = begin[(rows.args[begin] >= 0) & self._wanted(rows, begin)]
        if len(begin):
            self._given.append((number[begin], rows.arguments[rows.args[begin]]))
        self._end(rows, number)
        return zip(begin.tolist(), number[begin].tolist(), strict=True)

    def _end(self, rows: Rows, number: NDArray[np.int64]) -> None:
        row = np.flatnonzero(ENDS[rows.kind])
        row = row[(rows.kind[row] == Kind.POINT) | (rows.pair[row] != UNKNOWN)]
        begun = np.where(rows.kind[row] == Kind.POINT, row, rows.pair[row])
        low, high = self._span
        kept = (rows.time[begun] >= low) & (rows.time[begun] <= high) & self._wanted(rows, row)
        row, begun = row[kept], begun[kept]
        left = rows.kind[row] == Kind.LEAVE
        known = left & ((rows.flags[row] & Rows.VALUE) > 0)
        self._told.append(
            (
                rows.thread[row],
                rows.time[begun],
                np.where(left, rows.duration[row], UNKNOWN),
                rows.level[begun],
                rows.function[row],
                number[begun],
                rows.value[row],
                known,
            )
        )

    def _wanted(self, rows: Rows, row: NDArray[np.intp]) -> NDArray[np.bool_]:
        if self._chosen is None:
            return np.ones(len(row), bool)
        return self._chosen()[rows.function[row]]

    def order(self) -> NDArray[np.intp]:
        """The calls by time; all columns are there from here on."""
        empty = (np.empty(0, np.int64),) * 6 + (np.empty(0, np.uint64), np.empty(0, bool))
        parts = zip(*(self._told or [empty]), strict=True)
        joined = tuple(np.concatenate(part) for part in parts)
        self.thread, self.time, self.duration, self.depth, self.function = joined[:5]
        self.number, self.value, self.known = joined[5:]
        return np.lexsort((self.depth, self.time))

    def columns(self, order: NDArray[np.intp]) -> Columns:
        """What every recording has."""
        recording = self._source.recording
        functions, thread, function = recording.functions, self.thread[order], self.function[order]
        return {
            "time": self.time[order],
            "duration": self.duration[order],
            "pid": np.array(recording.pids, np.int64)[thread],
            "tid": np.array(recording.tids, np.int64)[thread],
            "depth": self.depth[order],
            "function": objects(functions.name)[function],
            "address": np.array(functions.address, np.uint64)[function],
        }

    def words(self, order: NDArray[np.intp]) -> Columns:
        """The recorded words of arguments; nothing where no call has any."""
        if not self._given:
            return {}
        number, words = (np.concatenate(part) for part in zip(*self._given, strict=True))
        sorter = np.argsort(number)
        at = np.searchsorted(number, self.number[order], sorter=sorter)
        at = sorter[np.minimum(at, len(number) - 1)]
        known = number[at] == self.number[order]
        return {name: _some(words[at, place], known) for place, name in enumerate(WORDS)}

    def values(self, order: NDArray[np.intp]) -> Columns:
        """The recorded return values; nothing where neither they nor arguments are recorded."""
        if not (self._given or self.known.any()):
            return {}
        return {"value": _some(self.value[order], self.known[order])}


def _some(held: NDArray[np.uint64], known: NDArray[np.bool_]) -> NDArray[Any]:
    """The same, with None for what is not known."""
    if known.all():
        return held
    out = held.astype(object)
    out[~known] = None
    return out
