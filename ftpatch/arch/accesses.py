# SPDX-License-Identifier: MIT
"""Memory accesses of instructions: read it, write it, or both."""

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
    not come to memory, -1: unknown. ``repeats``: between two times it stands where it is."""

    start: int
    end: int
    kind: int
    repeats: bool


def memory_accesses(arch: str, code: bytes, address: int) -> Iterator[Access]:
    """The instructions of ``code`` at ``address``, up to the first byte that is none; nothing for
    architectures that are not known."""
    if supports(arch, "accesses"):
        read: Callable[[bytes, int], Iterator[Access]] = feature(arch, "accesses")
        yield from read(code, address)
