# SPDX-License-Identifier: MIT
"""System calls that set or block signals, and whether the runtime can redirect them.

The rules are those of stubs/ARCH/system_calls.c; what the runtime answers for each call is in
is_asked() of stubs/runtime/signals.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["MAX_DISTANCE", "SystemCall", "system_calls"]

MAX_DISTANCE = 112
"""Bytes before a system call to examine."""


@dataclass(frozen=True)
class SystemCall:
    """One that may set or block a signal: ``start`` and ``end`` of the code from the load of its
    number up to itself, and whether it can be ``led`` elsewhere."""

    start: int
    end: int
    led: bool


def system_calls(arch: str, code: bytes, address: int) -> Iterator[SystemCall]:
    """Find those in ``code`` at ``address``. Raises InputError if an architecture's are not
    supported."""
    find: Callable[[bytes, int], Iterator[SystemCall]] = feature(arch, "system_calls")
    return find(code, address)
