# SPDX-License-Identifier: MIT
"""Accesses to variables, as reports show them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Access", "Accesses", "Variable"]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A watched variable of one process: ``line`` is how the watch is written, ``place`` the symbol
    with offset and size, as ``%pS`` prints it; ``address`` (link address);
    ``type`` that of the watch; ``refusal`` an errno and
    ``note`` what it means, 0 and empty where it was set."""

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
    """True if the report is about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One access. ``time`` in nanoseconds since the start; ``kind`` is r, w or rw, empty where
    nobody knows; ``cpu`` is None where it is not known. ``ip``, ``function`` and ``place`` (with
    offset and size) are None where SIGTRAP was blocked. ``before`` and ``after``: what was there
    when it was last looked at, and what is there now."""

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


class Accesses(Protocol):
    """All accesses of a report."""

    @property
    def variables(self) -> list[Variable]:
        """Those that are watched, of all processes."""

    def __iter__(self) -> Iterator[Access]:
        """Accesses to the variables that are meant, by time."""
