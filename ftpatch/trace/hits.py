# SPDX-License-Identifier: MIT
"""Hits: instants with columns of values, and calls recorded when they return; or what they come to,
counted instead of being recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ftpatch.trace.call_frames import StackTable

__all__ = [
    "FLOATS",
    "Column",
    "Field",
    "Group",
    "HistKey",
    "HistRow",
    "HistSum",
    "HistTable",
    "Hits",
    "Point",
    "Show",
    "floats",
]


class Show(Enum):
    """The formats of values."""

    UNSIGNED = "uint_value"
    SIGNED = "int_value"
    HEX = "pointer_value"
    SYMBOL = "symbol"
    STRING = "string"
    FLOAT = "f32"
    DOUBLE = "f64"


FLOATS = (Show.FLOAT, Show.DOUBLE)


@dataclass(frozen=True)
class Field:
    """A value that every hit of a point has; at most ``room`` bytes of a string are recorded, of
    which ``size`` are its own, 0 for all. ``names``: those that values are shown by; ``other``:
    that of all others, empty for numbers."""

    name: str
    show: Show
    room: int = 0
    size: int = 0
    names: tuple[tuple[int, str], ...] = ()
    other: str = ""


class Point(Protocol):
    """A source of hits: a probe."""

    @property
    def name(self) -> str:
        """The events' name."""

    @property
    def ip(self) -> int:
        """Link address."""

    @property
    def symbol(self) -> str | None:
        """The symbol it was placed at, if any."""

    @property
    def offset(self) -> int:
        """Offset from that symbol in bytes."""

    @property
    def library(self) -> str:
        """The library it is in, as its definition names it; empty for the program."""

    @property
    def returns(self) -> bool:
        """True if its hits are calls that returned."""

    @property
    def missed(self) -> int:
        """Hits that were not recorded (nmissed)."""

    @property
    def way(self) -> str:
        """The method that placed it: pad, jump or trap."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its values, in order."""


def floats(bits: NDArray[np.integer], show: Show) -> NDArray[np.floating]:
    """Values of IEEE 754 from their bits: float32[n] for FLOAT, float64[n] for DOUBLE. As text each
    is the shortest decimal that gives it back."""
    if show is Show.FLOAT:
        return bits.astype(np.uint32).view(np.float32)
    return bits.astype(np.uint64).view(np.float64)


@dataclass(frozen=True, kw_only=True)
class Column:
    """One value of n hits. ``number``: uint64[n], or int64[n] if signed, of the type's width; 0 for
    a string; of a float or double its bits. ``text``: uint8[n, room + 1], zero-padded strings;
    uint8[n, 0] for a number. ``lost`` bool[n]: could not be read. ``cut`` bool[n]: strings that
    were truncated or, in old traces, may have been."""

    field: Field
    number: NDArray[np.uint64] | NDArray[np.int64]
    text: NDArray[np.uint8]
    lost: NDArray[np.bool_]
    cut: NDArray[np.bool_]

    def strings(self) -> list[bytes]:
        """The strings' bytes."""
        return list(np.ascontiguousarray(self.text).view(f"S{self.text.shape[1]}").ravel().tolist())


@dataclass(frozen=True, kw_only=True)
class Group:
    """n hits of one point. ``header``: one that has the point. ``owner`` int32[n]: header of each
    hit's process. ``time`` int64[n], nanoseconds since the start; ``duration`` int64[n], 0 if not a
    call. ``caller`` uint64[n]: the return address in memory, empty if not calls. ``stack``
    int32[n]: the calls that led there, by number in ``stacks``; None if they are not recorded."""

    point: Point
    header: int
    thread: NDArray[np.int32]
    owner: NDArray[np.int32]
    time: NDArray[np.int64]
    duration: NDArray[np.int64]
    caller: NDArray[np.uint64]
    values: tuple[Column, ...]
    stack: NDArray[np.int32] | None = None
    stacks: StackTable | None = None

    def __len__(self) -> int:
        return len(self.time)


@dataclass(frozen=True)
class HistKey:
    """A part of a key. ``low`` is its value (an address in memory for SYMBOL and callers, bytes for
    STRING; of a stack its return addresses in memory, the innermost first), or the least of a
    bucket of which ``high`` is the greatest."""

    low: int | float | bytes | tuple[int, ...]
    high: int | None = None


@dataclass(frozen=True)
class HistSum:
    """A value's sum, its least and its greatest. Of floats NaN counts in the sum alone."""

    total: int | float
    least: int | float
    most: int | float


@dataclass(frozen=True)
class HistRow:
    """A key, how often it was hit, and what its values come to."""

    key: tuple[HistKey, ...]
    hits: int
    sums: tuple[HistSum, ...]


@dataclass(frozen=True, kw_only=True)
class HistTable:
    """The histogram of ``point``, of the process of ``header``: by key if that is of buckets, else
    the most frequent first. ``names`` and ``shows`` of a key's parts, and which of these are return
    addresses (``callers``); ``sums``: the names of values; ``stacks`` names the calls of stacks."""

    point: Point
    header: int
    names: tuple[str, ...]
    shows: tuple[Show, ...]
    callers: tuple[bool, ...]
    sums: tuple[str, ...]
    rows: tuple[HistRow, ...]
    stacks: StackTable | None = None

    @property
    def hits(self) -> int:
        """The number of hits that were counted."""
        return sum(row.hits for row in self.rows)


class Hits(Protocol):
    """n hits by time. ``thread`` and ``point`` (index into ``points``) int32[n]; ``time`` int64[n],
    nanoseconds since the start; ``begin`` int64[n]: start of the call that returned there, else the
    same.

    ``points`` are those selected; one that several files have is listed once, with the sum of what
    they missed. ``header`` of each: one that has it. ``told``: all points of each header, and
    ``numbers`` int32[]: the index of each of them, -1 if not selected.
    """

    points: list[Point]
    header: list[int]
    told: list[list[Point]]
    numbers: list[NDArray[np.int32]]
    thread: NDArray[np.int32]
    point: NDArray[np.int32]
    time: NDArray[np.int64]
    begin: NDArray[np.int64]

    @property
    def hists(self) -> Sequence[HistTable]:
        """Histograms that were counted instead of recording hits, of points selected."""

    def __len__(self) -> int: ...

    def parts(self) -> Iterator[Hits]:
        """All hits, in parts: those that are here, or while they are being recorded what comes
        before those that are here, which are none. What is said of points is final then."""

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep only the hits of a mask, bool[n]."""

    def group(self, number: int, rows: NDArray[np.intp]) -> Group:
        """Read the hits ``rows``, all of the point ``number``, with their values."""
