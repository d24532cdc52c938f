# SPDX-License-Identifier: MIT
"""The definition of a probe: its place and its fetches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Literal

__all__ = ["DEFAULT_TYPE", "TYPES", "Definition", "Fetch", "Source"]

DEFAULT_TYPE = "x64"
"""DEFAULT_FETCH_TYPE of kernel/trace/trace_probe.h: hexadecimal, since 4.0."""
TYPES: Mapping[str, int] = MappingProxyType(
    {f"{sign}{8 * width}": width for sign in "usx" for width in (1, 2, 4, 8)}
    | {"string": 0, "symbol": 8}
)
"""Width of each type (bytes); that of a string is its own."""


class Source(Enum):
    """The source of a fetch's first word, and the meaning of its ``text`` and ``value``."""

    REGISTER = "%REG"
    """``text``: the register's name."""
    STACK = "$stack"
    """The stack pointer itself."""
    STACK_WORD = "$stackN"
    """``value``: which word of the stack, from 0."""
    RETVAL = "$retval"
    ARGUMENT = "$argN"
    """``value``: which argument of the function, from 1."""
    SYMBOL = "@SYMBOL"
    """The address of the symbol ``text``, and ``value`` bytes (signed) to it."""
    ADDRESS = "@ADDRESS"
    """``value``: the address, as the file has it."""
    COMM = "$comm"
    """The name of the program; its type is always string."""
    IMMEDIATE = "\\IMM"
    """``value``: the number, from -2**63 to 2**64 - 1."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One argument of an event.

    It begins with the word that ``source`` gives. Each of ``reads`` then adds its offset (bytes,
    signed 32 bits) and takes what is in memory there: a pointer, and the last of them as many bytes
    as ``type`` has, or the string that begins there. ``@`` is such a read, of offset 0, so the
    first of SYMBOL and of ADDRESS. Without any, the low bytes of the word are the value.
    """

    name: str
    source: Source
    text: str = ""
    value: int = 0
    reads: tuple[int, ...] = ()
    type: str = DEFAULT_TYPE


@dataclass(frozen=True, slots=True)
class Definition:
    """A probe at ``symbol`` + ``offset`` (bytes), or at ``address`` (as the file has it) where
    ``symbol`` is None; of kind ``p`` when that is reached, ``r`` when that function returns.

    ``maxactive``: how many calls an ``r`` probe can follow at a time; 0: as many as is usual.
    ``text`` is how it was written, and no part of comparisons.
    """

    kind: Literal["p", "r"]
    group: str
    name: str
    symbol: str | None
    offset: int = 0
    address: int | None = None
    maxactive: int = 0
    fetches: tuple[Fetch, ...] = ()
    text: str = field(default="", compare=False)
