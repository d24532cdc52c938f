# SPDX-License-Identifier: MIT
"""Filters, as behind ``if``: which events are recorded.

They are trees of comparisons and of tests that count what reaches them. A feature adds tests of its
own, and says what its values are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

__all__ = ["Compare", "Count", "Filter", "Join", "Not", "Operand"]


class Operand(Protocol):
    """A value that can be compared: ``name`` in messages, ``type`` one of TYPES."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def type(self) -> str:
        """One of TYPES."""


Value = TypeVar("Value", bound=Operand)
Test = TypeVar("Test")


@dataclass(frozen=True, slots=True)
class Compare(Generic[Value]):
    """A comparison of a filter, by an operator of ftrace's event filters. The right side of a
    string is bytes. What cannot be read makes it false."""

    left: Value
    operator: str
    right: Value | int | float | bytes


@dataclass(frozen=True, slots=True)
class Count:
    """A test of a filter that lets pass each ``number``-th of what reaches it, or only as many."""

    kind: Literal["every", "first"]
    number: int


@dataclass(frozen=True, slots=True)
class Not(Generic[Test]):
    """A filter that lets pass what another one does not."""

    part: Filter[Test]


@dataclass(frozen=True, slots=True)
class Join(Generic[Test]):
    """Filters of which all (``&&``) or any (``||``) must let an event pass. They are asked in turn,
    as far as it takes."""

    operator: Literal["&&", "||"]
    parts: tuple[Filter[Test], ...]


Filter: TypeAlias = Test | Count | Not[Test] | Join[Test]
