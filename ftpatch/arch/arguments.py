# SPDX-License-Identifier: MIT
"""Places of arguments: a calling convention's view of types, and its answer.

Word n is the n-th of those that a tracer records of a call: registers, or words of the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from ftpatch.arch import arch_of, feature, supports

__all__ = [
    "LOST",
    "OwnVariadic",
    "WORDS",
    "Convention",
    "Passed",
    "Place",
    "Scalar",
    "Sort",
    "UnclearError",
    "convention_of",
]

WORDS = 6
"""Words recorded of each call."""
LOST = -1
"""Stands for a word that is not recorded."""


class UnclearError(Exception):
    """It does not follow from the declaration where the arguments are."""


class Sort(Enum):
    """Sorts of scalars."""

    INTEGER = auto()
    """Integers, enumerations and pointers."""
    FLOAT = auto()
    EXTENDED = auto()
    """long double, where it is wider than double."""
    VECTOR = auto()
    EMPTY = auto()
    """A class without members, inside another one."""


@dataclass(frozen=True, kw_only=True)
class Scalar:
    """A scalar at an ``offset`` of an argument; both numbers in bytes."""

    offset: int
    size: int
    sort: Sort


@dataclass(frozen=True, kw_only=True)
class Passed:
    """An argument or a result of ``size`` bytes. ``scalars`` are those in it, if it has up to 64
    bytes; ``composite``: it is a structure or a union; ``union``: there is a union in it;
    ``by_reference``: its language passes its address (a C++ class that is not trivially copied);
    ``widest``: the size of its widest scalar."""

    size: int
    scalars: tuple[Scalar, ...]
    composite: bool = False
    union: bool = False
    by_reference: bool = False
    widest: int = 0


@dataclass(frozen=True, kw_only=True)
class Place:
    """The ``words`` that hold an argument, in order, LOST for those that were not recorded;
    ``missing``: where these are. ``address``: the word is the argument's address. ``vectors``: for
    each of them the vector register that holds it, LOST for none; empty where none does, or where
    they do not hold 8 bytes each. ``register``: of one that is not recorded, its place among the
    registers for arguments; LOST where that follows from what is before it. ``stack``: of one that
    is all there, how many words from the stack pointer on; LOST for others, and where that follows
    too."""

    words: tuple[int, ...] = ()
    missing: str = ""
    address: bool = False
    vectors: tuple[int, ...] = ()
    register: int = LOST
    stack: int = LOST


class Convention(Protocol):
    """A calling convention."""

    @property
    def registers(self) -> tuple[int, ...]:
        """DWARF's numbers of the registers that the words are; none if they are the stack's."""

    @property
    def vectors(self) -> tuple[int, ...]:
        """DWARF's numbers of the vector registers for arguments, of which the first ones return
        results; none if there are none."""

    @property
    def others(self) -> tuple[int, ...]:
        """DWARF's numbers of further registers, in which functions get arguments that are not
        called as the convention says."""

    @property
    def word(self) -> int:
        """Bytes of a word."""

    @property
    def copies(self) -> bool:
        """Return whether functions that are not optimized copy what they get by address."""

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """Place the arguments of a function. Raises UnclearError."""
        ...

    def returned(self, result: Passed) -> Place:
        """Place what a function returns: its words are those of the registers for results, and
        ``address`` that the first one has where it is. Raises UnclearError."""
        ...


@runtime_checkable
class OwnVariadic(Protocol):
    """A convention with another one for functions that take further arguments."""

    def place_variadic(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """Place the named ones of such a function. Raises UnclearError."""
        ...


def convention_of(machine: int, elf_class: int) -> Convention | None:
    """The convention of C and C++ on an architecture; None if it is not known."""
    arch = arch_of(machine, elf_class)
    if arch is None or not supports(arch.name, "arguments"):
        return None
    found: Convention = feature(arch.name, "arguments")
    return found
