# SPDX-License-Identifier: MIT
"""A plan for a process: what is mapped in it, what is started there, and what its code becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.injected_call import Function
from ftpatch.core.changes import Changes
from ftpatch.process.areas import Area

__all__ = ["Calls", "Exported", "Planned", "Signals", "joined"]


@dataclass(frozen=True)
class Calls:
    """Changes of code in memory, n of them, and which of them replace ``nop`` code, bool[n]."""

    changes: Changes
    nop: NDArray[np.bool_]


@dataclass(frozen=True)
class Exported:
    """The word at an ``address`` in a .dynsym, its ``old`` and ``new`` contents, and what slots
    hold that are bound by that: the address of ``function``, or of the runtime's ``entry``."""

    address: int
    old: int
    new: int
    function: int
    entry: int


@dataclass(frozen=True, kw_only=True)
class Signals:
    """A signal that a runtime takes over from the program: addresses of its struct signals
    (``state``), and of the functions that ``take`` it and ``release`` it; ``changes`` that lead
    system calls to it; ``gates``: where each of these calls is asked for, by the address of its
    instruction; ``spans``: bounds of the code from the load of its number to that."""

    state: int
    take: int
    release: int
    changes: Changes
    gates: Mapping[int, int]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A plan for a process: the name of the ``tracer``; whether it ``records``, and ``hooks``
    returns; ``areas`` to map, of which the first has the runtime; ``start`` of that; ``calls``: the
    Changes to code; ``callees``: path and load address of each image, and what its sites call;
    ``runtime`` and ``returns``: addresses of struct process and return_to_handler; ``probes``: the
    address that was changed for each, and its definition; ``slots``: (address, old, new) of the
    words by which unwinders come to ask the runtime, and the address of the one that tells that
    they have (``asked``); ``linker``: bounds of the code that may be about to change a slot;
    ``exports``: those by which unwinders come that are loaded later; ``config``: address of struct
    stub_config; ``otherwise``: the hint where returns cannot be hooked; ``signals``: what traps
    need."""

    arch: str
    tracer: str
    records: bool
    hooks: bool
    areas: tuple[Area, ...]
    start: Function
    calls: Calls
    runtime: int
    returns: int
    otherwise: str
    callees: tuple[tuple[str, int, int], ...] = ()
    probes: tuple[tuple[int, str], ...] = ()
    slots: tuple[tuple[int, int, int], ...] = ()
    asked: int = 0
    linker: tuple[int, int] | None = None
    exports: tuple[Exported, ...] = ()
    config: int = 0
    signals: Signals | None = None


def joined(parts: Iterable[Calls]) -> Calls:
    """All of them."""
    parts = list(parts)
    changes = Changes.concat(part.changes for part in parts)
    return Calls(changes, np.concatenate([np.empty(0, bool), *(part.nop for part in parts)]))
