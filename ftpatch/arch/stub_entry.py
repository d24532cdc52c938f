# SPDX-License-Identifier: MIT
"""The entry of a user's stub in a kernel's module: it saves what lives at function entry, and calls
``ftrace_caller(ip, parent)``, a C function that uses general registers only."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.arch import feature
from ftpatch.arch.assemble import instruction

__all__ = ["StubEntry", "stub_entry"]

BASE = 0x4000_0000
"""Address to assemble code at: only distances matter."""


@dataclass(frozen=True)
class StubEntry:
    """``landing`` is for indirect calls of it, ``lines`` are instructions; $ in them is the
    callee."""

    landing: bytes
    lines: tuple[str, ...]


def stub_entry(arch: str, callee: int) -> bytes:
    """The code of an entry that calls what is ``callee`` bytes behind its start (negative: before
    it). Raises InputError if an architecture has none."""
    entry: StubEntry = feature(arch, "stub_entry")
    code = entry.landing
    for line in entry.lines:
        code += instruction(arch, line.replace("$", hex(BASE + callee)), BASE + len(code))
    return code
