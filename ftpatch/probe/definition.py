# SPDX-License-Identifier: MIT
"""The definition of a probe: its place and its fetches."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from ftpatch.core.filters import Compare, Count, Join, Not
from ftpatch.core.filters import Filter as AnyFilter
from ftpatch.core.number_types import FLOATS, SIGNED, TYPES
from ftpatch.core.stack_word import Stack
from ftpatch.core.token import Token
from ftpatch.probe.event_names import GROUP

__all__ = [
    "DEFAULT_TYPE",
    "FLOATS",
    "HIST_SIZE",
    "SIGNED",
    "TYPES",
    "Compare",
    "Count",
    "Definition",
    "Fetch",
    "Filter",
    "Hist",
    "Join",
    "Key",
    "Not",
    "Source",
    "Stack",
    "Test",
    "Within",
]

DEFAULT_TYPE = "x64"
"""DEFAULT_FETCH_TYPE of kernel/trace/trace_probe.h: hexadecimal, since 4.0."""
HIST_SIZE = 2048
"""Entries of a histogram: TRACING_MAP_BITS_DEFAULT of kernel/trace/tracing_map.h."""


class Source(Enum):
    """The source of a fetch's first word, and the meaning of its ``text`` and ``value``."""

    REGISTER = "%REG"
    """``text``: the register's name."""
    PAIR = "%REG:%REG"
    """``text``: the names of the registers that have the upper and the lower word."""
    STACK = "$stack"
    """The stack pointer itself."""
    STACK_WORD = "$stackN"
    """``value``: index of the word on the stack, from 0."""
    RETVAL = "$retval"
    ARGUMENT = "$argN"
    """``value``: number of the function's argument, from 1."""
    SYMBOL = "@SYMBOL"
    """The address of the symbol ``text``, plus ``value`` bytes (signed)."""
    ADDRESS = "@ADDRESS"
    """``value``: the link address."""
    COMM = "$comm"
    """The process's name (comm); its type is always string."""
    VARIABLE = "NAME"
    """The value that the source calls ``text``, from character ``value`` of the definition on; to
    be found in the debug information."""
    IMMEDIATE = "\\IMM"
    """``value``: the number, from -2**63 to 2**64 - 1."""
    TID = "$tid"
    """The id of the thread, in filters and histograms."""
    CALLER = "$caller"
    """The address that the function returns to, in histograms."""
    LATENCY = "$latency"
    """The time that a call took, in histograms of r probes."""
    DEPTH = "$depth"
    """The number of calls that r probes follow and the thread is in, in filters."""
    FRAMES = "stack"
    """Return addresses along the frame pointers, ``value`` of them at most, in histograms."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """One argument of an event.

    Evaluation starts with the word from ``source``. Each of ``reads`` adds its offset (bytes,
    signed 32 bits) and loads from there: a pointer, except for the last, which loads as many bytes
    as ``type`` has, or the string that starts there. ``@`` is a read at offset 0, and so the first
    one of SYMBOL and ADDRESS. Without reads, the value is the word's low bytes. ``user``: which of
    the ``reads`` a kernel has to make in user memory (``+u``). ``names``: how values are shown that
    have names (enumerators), ascending; ``other``: how all others are, empty for numbers;
    ``room``: the bytes that a string can have, 0 for any.
    """

    name: str
    source: Source
    text: str = ""
    value: int = 0
    reads: tuple[int, ...] = ()
    type: str = DEFAULT_TYPE
    user: frozenset[int] = frozenset()
    names: tuple[tuple[int, str], ...] = ()
    room: int = 0
    other: str = ""


@dataclass(frozen=True, slots=True)
class Within:
    """A test of a filter that lets pass what happens in a call of a function, on the same thread:
    of ``symbol``, or at the link address ``address`` if that is None, of the program or of a
    ``library``. ``token`` is where it stands."""

    symbol: str | None
    address: int
    library: str
    token: Token = field(compare=False)

    @property
    def text(self) -> str:
        """The function, as a probe names it."""
        place = f"0x{self.address:x}" if self.symbol is None else self.symbol
        return f"{self.library}:{place}" if self.library else place


Test = Compare[Fetch] | Within
Filter = AnyFilter[Test]
"""The filter of a probe."""


@dataclass(frozen=True, slots=True)
class Key:
    """A part of a histogram's key. ``log2``: only its magnitude counts; ``buckets``: only that,
    divided by so much, 0 for the value itself."""

    fetch: Fetch
    log2: bool = False
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class Hist:
    """The histogram of a probe: hits are counted by ``keys``, and ``values`` are summed up. It has
    ``size`` entries, a power of two."""

    keys: tuple[Key, ...] = ()
    values: tuple[Fetch, ...] = ()
    size: int = HIST_SIZE


@dataclass(frozen=True, slots=True)
class Definition:
    """A probe at ``symbol`` + ``offset`` (bytes), or at the link address ``address`` if ``symbol``
    is None. Kind ``p`` fires when that place is reached, ``r`` when that function returns.

    ``library``: the loaded library that has it, by its path, its file's name or its SONAME; empty
    for the program. ``file`` and ``line``: the place, where the source tells it, instead of symbol
    and address, until it is found; ``later``: its text has names of the source, and its filter and
    histogram are not read until these are found; ``hoped``: what it returns is a float, if debug
    information says so. ``maxactive``: the number of calls an ``r`` probe
    can follow at once, 0 for the default. ``hist``: what it counts instead of recording it;
    ``filter``: which hits it records or counts. ``text`` is the definition as written; comparisons
    ignore it. ``stack``: how the calls that led to a hit are recorded with it, if they are.

    ``template``: GROUP/NAME for the functions of a wildcard, in case the symbol is none's name.
    ``pattern``: the wildcard that the function was found by.
    """

    kind: Literal["p", "r"]
    group: str
    name: str
    symbol: str | None
    offset: int = 0
    address: int | None = None
    maxactive: int = 0
    fetches: tuple[Fetch, ...] = ()
    hist: Hist | None = None
    filter: Filter | None = None
    text: str = field(default="", compare=False)
    library: str = ""
    file: str = ""
    line: int = 0
    later: bool = False
    template: str = field(default="", compare=False)
    pattern: str = field(default="", compare=False)
    stack: Stack | None = None
    hoped: bool = field(default=False, compare=False)

    @property
    def event(self) -> str:
        """Its events' name in reports: with the group, if it has one of its own."""
        return self.name if self.group == GROUP else f"{self.group}/{self.name}"
