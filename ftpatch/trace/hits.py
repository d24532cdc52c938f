"""Hits: instants with columns of values, and calls of which the end is recorded with the begin."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Column", "Field", "Group", "Hits", "Point", "Show"]


class Show(Enum):
    """The forms of values."""

    UNSIGNED = "uint_value"
    SIGNED = "int_value"
    HEX = "pointer_value"
    SYMBOL = "symbol"
    STRING = "string"


@dataclass(frozen=True)
class Field:
    """A value that every hit of a point has; of a string at most ``room`` bytes are recorded."""

    name: str
    show: Show
    room: int = 0


class Point(Protocol):
    """A source of hits: a probe."""

    @property
    def name(self) -> str:
        """Name of its events."""

    @property
    def ip(self) -> int:
        """Link address."""

    @property
    def symbol(self) -> str | None:
        """The symbol that it was put at, if it was one."""

    @property
    def offset(self) -> int:
        """Bytes from that symbol."""

    @property
    def returns(self) -> bool:
        """True if its hits are calls that returned."""

    @property
    def missed(self) -> int:
        """Hits that were not recorded (nmissed)."""

    @property
    def way(self) -> str:
        """The method by which it is there: pad, jump or trap."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its values, in their order."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One value of n hits. ``number``: of its type's width, uint64[n], or int64[n] where that is
    signed; of a string 0. ``text``: uint8[n, room + 1], zeros behind a string's end; of a number
    uint8[n, 0]. ``lost`` bool[n]: what could not be read. ``cut`` bool[n]: strings that go on, or,
    in old traces, that may."""

    field: Field
    number: NDArray[np.uint64] | NDArray[np.int64]
    text: NDArray[np.uint8]
    lost: NDArray[np.bool_]
    cut: NDArray[np.bool_]

    def strings(self) -> list[bytes]:
        """The bytes of strings."""
        return list(np.ascontiguousarray(self.text).view(f"S{self.text.shape[1]}").ravel().tolist())


@dataclass(frozen=True, kw_only=True)
class Group:
    """n hits of one point. ``header``: one that has the point. ``owner`` int32[n]: header of each
    hit's process. ``time`` int64[n], nanoseconds since the start; ``duration`` int64[n] of calls,
    else 0. ``caller`` uint64[n]: where calls returned to (address in memory), else empty."""

    point: Point
    header: int
    thread: NDArray[np.int32]
    owner: NDArray[np.int32]
    time: NDArray[np.int64]
    duration: NDArray[np.int64]
    caller: NDArray[np.uint64]
    values: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.time)


class Hits(Protocol):
    """n hits by time. ``thread`` and ``point`` (index of ``points``) int32[n]; ``time`` int64[n],
    nanoseconds since the start; ``begin`` int64[n]: when the call began that returned there, else
    the same.

    ``points`` are those that are meant; one that several files have is there once, with what all
    of them missed. ``header`` of each: one that has it. ``told``: all points of each header, and
    ``numbers`` int32[]: index of each of them, -1 for what is not meant.
    """

    points: list[Point]
    header: list[int]
    told: list[list[Point]]
    numbers: list[NDArray[np.int32]]
    thread: NDArray[np.int32]
    point: NDArray[np.int32]
    time: NDArray[np.int64]
    begin: NDArray[np.int64]

    def __len__(self) -> int: ...

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Leave out the others, bool[n]."""

    def group(self, number: int, rows: NDArray[np.intp]) -> Group:
        """Hits ``rows`` with their values, all of the point ``number``."""
