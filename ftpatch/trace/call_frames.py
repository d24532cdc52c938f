# SPDX-License-Identifier: MIT
"""The calls that led to hits: one by its name, and all of a hit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ftpatch.trace.symbolize import Program

__all__ = ["Frame", "Placed", "Stack", "StackTable"]


@dataclass(frozen=True)
class Frame:
    """A call of a stack: the ``program`` that has its function, ``name`` and link address of that
    (``start``), how far behind it is (``offset``), and its ``size``, 0 if unknown. ``library``:
    the file's name, empty for the program. Without a symbol ``name`` is the file's, and offsets are
    link addresses; in no known file it is the address."""

    program: Program
    name: str
    start: int
    offset: int
    size: int
    library: str = ""
    known: bool = True

    @property
    def text(self) -> str:
        """``main+0x1f/0x51``, with ``[libc.so.6]`` behind it in a library."""
        if not self.name:
            return hex(self.offset)
        size = f"/{self.size:#x}" if self.size else ""
        behind = f" [{self.library}]" if self.library and self.known else ""
        return f"{self.name}+{self.offset:#x}{size}{behind}"


@dataclass(frozen=True)
class Stack:
    """The calls that led to a hit, from the innermost on: addresses in the memory of the process of
    a ``header``, with EXACT where they are no return addresses. ``cut``: there are more."""

    header: int
    frames: tuple[int, ...]
    cut: bool


class Placed(Protocol):
    """The place of hits."""

    @property
    def ip(self) -> int:
        """Link address."""


class StackTable(Protocol):
    """Different stacks, by number."""

    @property
    def all(self) -> Sequence[Stack]:
        """All that were read so far."""

    def frames(self, stack: Stack) -> list[Frame]:
        """The calls of a stack, by name."""

    def probed(self, stack: Stack, point: Placed) -> Frame:
        """The call that a hit of a point is about."""
