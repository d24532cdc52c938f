# SPDX-License-Identifier: MIT
"""System calls led to a runtime in a running process: a jump at the load of the number, and what
runs instead. In files the runtime does the same to its own process (stubs/ARCH/system_calls.c)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Led", "LedCall", "Waiting"]


@dataclass(frozen=True)
class Led:
    """The ``code`` of a stub; ``gate``: its offset at which the call is about to be made, with its
    number and arguments in their registers."""

    code: bytes
    gate: int


@dataclass(frozen=True)
class Waiting:
    """A call that waits with signals blocked by an argument, which is a pointer to the mask, or to
    a structure that begins with such a pointer (``inside``)."""

    argument: int
    inside: bool


@dataclass(frozen=True, kw_only=True)
class LedCall:
    """``size``: bytes of a stub, or more; ``jump``: bytes at the place. ``make(code, start, at,
    asked)``: the stub at ``at`` of the call whose ``code`` at ``start``, from the load of its
    number to its own instruction, calls ``asked`` instead; raises Immovable. ``arguments``: the
    registers of a call's; ``waiting``: those that block signals meanwhile, by number."""

    size: int
    jump: int
    make: Callable[[bytes, int, int, int], Led]
    arguments: tuple[str, ...]
    waiting: Mapping[int, Waiting]
