# SPDX-License-Identifier: MIT
"""Accesses to variables, for reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from ftpatch.trace.call_frames import StackTable

__all__ = ["Access", "Accesses", "Variable"]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A watched variable of one process: ``line`` is the watch as written, ``place`` the symbol
    with offset and size, as ``%pS`` prints it; ``address`` is a link address, ``type`` the watch's.
    ``refusal`` is an errno and ``note`` its meaning, 0 and empty if the watch was set."""

    header: int
    line: str
    symbol: str
    place: str
    address: int
    offset: int
    length: int
    type: str
    hits: int
    missed: int
    refusal: int
    note: str
    meant: bool
    """True if the report covers it."""
    stack: bool = False
    """True if the calls that led to its accesses are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One access. ``time`` in nanoseconds since the start; ``kind`` is r, w or rw, empty if
    unknown; ``cpu`` is None if unknown. ``ip``, ``function`` and ``place`` (with offset and size)
    are None if SIGTRAP was blocked. ``before`` and ``after`` are the value at the previous look,
    and now. ``stack``: the calls that led there, by number in the ``stacks``; None if they are not
    recorded."""

    variable: Variable
    thread: int
    time: int
    cpu: int | None
    kind: str
    ip: int | None
    function: str | None
    place: str | None
    before: int
    after: int
    stack: int | None = None


class Accesses(Protocol):
    """All accesses of a report."""

    @property
    def variables(self) -> list[Variable]:
        """The watched variables of all processes."""

    @property
    def stacks(self) -> StackTable | None:
        """The stacks of accesses; None where none are recorded."""

    def __iter__(self) -> Iterator[Access]:
        """Accesses to the variables selected, by time."""
