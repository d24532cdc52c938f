# SPDX-License-Identifier: MIT
"""Memory accesses of instructions: read, write, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ftpatch.arch import feature, supports

__all__ = ["NEITHER", "READ", "UNKNOWN", "WRITE", "Access", "memory_accesses"]

READ = 1
WRITE = 2
NEITHER = 0
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Access:
    """An instruction from ``start`` to ``end`` (addresses). ``kind``: READ, WRITE, both, 0: it does
    not access memory, -1: unknown. ``repeats``: the pc stays on it between repetitions."""

    start: int
    end: int
    kind: int
    repeats: bool


def memory_accesses(arch: str, code: bytes, address: int) -> Iterator[Access]:
    """Disassemble ``code`` at ``address``, up to the first invalid byte; nothing for unknown
    architectures."""
    if supports(arch, "accesses"):
        read: Callable[[bytes, int], Iterator[Access]] = feature(arch, "accesses")
        yield from read(code, address)
