"""Events as columns, after it is known which call each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNKNOWN", "Kind", "Rows", "join_rows"]

UNKNOWN = -1
"""In place of a duration, a pair, an index."""


class Kind(IntEnum):
    """Kind of a row."""

    OPEN = 0
    """A frame that was open before this batch, told again."""
    ENTER = 1
    LEAVE = 2
    UNWOUND = 3
    """A frame that was left without a return."""
    RETURN = 4
    """A return from a frame that is not open: one that was left, or that was never seen."""
    POINT = 5
    """A call of which nobody will tell the return."""
    END = 6
    """A frame that was open when the trace ended."""
    LEAF = 7
    """A call and its return in one, where nothing came between."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """n rows. ``kind`` uint8[n]. ``thread`` int32[n]. ``time`` int64[n], nanoseconds since the
    start. ``func`` uint32[n], as in the file; ``function`` int32[n], index of the function.
    ``level`` int32[n]: frames that are open below. ``pair`` intp[n]: the row where the same call
    ends or begins, UNKNOWN for none. ``duration`` int64[n]: nanoseconds of a call that returned,
    on its last row, else UNKNOWN. ``late`` int64[n]: of a RETURN the nanoseconds since that frame
    was left, else UNKNOWN. ``flags`` uint8[n]: VALUE where ``value`` uint64[n] means something
    (what was returned; of an entry the return address). ``args`` int32[n]: row of ``arguments``,
    uint64[m, 6], else UNKNOWN. ``until``: all later batches are at this time or after it
    (nanoseconds)."""

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

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, index: NDArray[Any]) -> Rows:
        """The rows of an index or mask. Pairs of which one is not among them are lost."""
        columns = {name: getattr(self, name)[index] for name in COLUMNS if name not in LATER}
        taken: dict[int, NDArray[Any]] = {}
        for name in LATER:  # in fresh rows several of these are one array
            column = getattr(self, name)
            columns[name] = taken.setdefault(id(column), column[index])
        has = columns["args"] >= 0
        arguments = self.arguments[:0]
        if len(self.arguments) and has.any():
            arguments = self.arguments[columns["args"][has]]
            columns["args"] = columns["args"].copy()
            columns["args"][has] = np.arange(len(arguments))
        if self.pair is not self.late:
            place = np.full(len(self) + 1, UNKNOWN, np.intp)  # the last for those without a pair
            chosen = np.flatnonzero(index) if index.dtype == bool else index
            place[chosen] = np.arange(len(chosen))
            columns["pair"] = place[columns["pair"]]
        return Rows(**columns, arguments=arguments, until=self.until)

    def but(self, **columns: Any) -> Rows:  # noqa: ANN401 - columns of any type
        """The same with other columns."""
        return replace(self, **columns)


LATER = ("function", "level", "args", "pair", "duration", "late")
COLUMNS = [f.name for f in fields(Rows) if f.name not in ("arguments", "until")]


def join_rows(parts: Sequence[Rows]) -> Rows:
    """All rows, one part after the other; ``until`` is the last one's."""
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
