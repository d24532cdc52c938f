# SPDX-License-Identifier: MIT
"""Events as columns, each matched to its call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNKNOWN", "Kind", "Rows", "join_rows"]

UNKNOWN = -1
"""Stands for a missing duration, pair or index."""


class Kind(IntEnum):
    """The kinds of rows."""

    OPEN = 0
    """A frame that was open before this batch, repeated."""
    ENTER = 1
    LEAVE = 2
    UNWOUND = 3
    """A frame that was left without a return."""
    RETURN = 4
    """A return from a frame that is not open: it was unwound, or never seen."""
    POINT = 5
    """A call whose return is not recorded."""
    END = 6
    """A frame that was open when the trace ended."""
    LEAF = 7
    """A call and its return in one, with nothing in between."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """n rows. ``kind`` uint8[n]. ``thread`` int32[n]. ``time`` int64[n], nanoseconds since the
    start. ``func`` uint32[n], as in the file; ``function`` int32[n], index of the function.
    ``level`` int32[n]: open frames below. ``pair`` intp[n]: the row where the same call ends or
    begins, UNKNOWN for none. ``duration`` int64[n]: nanoseconds of a call that returned, on its
    last row, else UNKNOWN. ``late`` int64[n]: for a RETURN the nanoseconds since its frame was
    left, else UNKNOWN. ``flags`` uint8[n]: VALUE where ``value`` uint64[n] is valid (a return
    value; for an entry, the return address); INSTANT of a POINT that is no call, but an event of
    another kind, whose number ``value`` is. ``args`` int32[n]: row of ``arguments``, uint64[m, 6],
    else UNKNOWN. ``until``: a lower bound for the times of all later batches (nanoseconds)."""

    kind: NDArray[np.uint8]
    thread: NDArray[np.int32]
    time: NDArray[np.int64]
    func: NDArray[np.uint32]
    function: NDArray[np.int32]
    level: NDArray[np.int32]
    pair: NDArray[np.intp]
    duration: NDArray[np.int64]
    late: NDArray[np.int64]
    flags: NDArray[np.uint8]
    value: NDArray[np.uint64]
    args: NDArray[np.int32]
    arguments: NDArray[np.uint64]
    until: int = 0

    VALUE = 1
    INSTANT = 2

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, index: NDArray[Any]) -> Rows:
        """Select rows by index or mask. A pair is lost unless both its rows are selected."""
        columns = {name: getattr(self, name)[index] for name in COLUMNS if name not in LATER}
        taken: dict[int, NDArray[Any]] = {}
        for name in LATER:  # fresh rows share one array among several of these
            column = getattr(self, name)
            columns[name] = taken.setdefault(id(column), column[index])
        has = columns["args"] >= 0
        arguments = self.arguments[:0]
        if len(self.arguments) and has.any():
            arguments = self.arguments[columns["args"][has]]
            columns["args"] = columns["args"].copy()
            columns["args"][has] = np.arange(len(arguments))
        if self.pair is not self.late:
            place = np.full(len(self) + 1, UNKNOWN, np.intp)  # the last one for rows without a pair
            chosen = np.flatnonzero(index) if index.dtype == bool else index
            place[chosen] = np.arange(len(chosen))
            columns["pair"] = place[columns["pair"]]
        return Rows(**columns, arguments=arguments, until=self.until)

    def but(self, **columns: Any) -> Rows:  # noqa: ANN401 - columns of any type
        """Return the same rows with some columns replaced."""
        return replace(self, **columns)


LATER = ("function", "level", "args", "pair", "duration", "late")
COLUMNS = [f.name for f in fields(Rows) if f.name not in ("arguments", "until")]


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows; ``until`` is the last part's."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
    firsts = np.cumsum([0, *(len(part) for part in parts)])
    rows = np.cumsum([0, *(len(part.arguments) for part in parts)])
    for name, offsets in (("pair", firsts), ("args", rows)):
        shifted = [
            np.where(getattr(part, name) >= 0, getattr(part, name) + offsets[i], UNKNOWN)
            for i, part in enumerate(parts)
        ]
        columns[name] = np.concatenate(shifted).astype(columns[name].dtype)
    arguments = np.concatenate([part.arguments for part in parts])
    return Rows(**columns, arguments=arguments, until=parts[-1].until)
