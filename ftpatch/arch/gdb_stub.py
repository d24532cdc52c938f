# SPDX-License-Identifier: MIT
"""QEMU's gdb stub of an architecture: what it calls the program counter, and when it stops."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["GdbStub", "gdb_stub_of"]


@dataclass(frozen=True, kw_only=True)
class GdbStub:
    """``pc``: the program counter's number in the stub's registers (gdb-xml/ of QEMU), eight bytes;
    ``before``: a watchpoint stops before the access, as the architecture's own do; ``alone``: QEMU
    7.2 dies where all registers are asked for at once."""

    pc: int
    before: bool
    alone: bool = False


def gdb_stub_of(arch: str) -> GdbStub:
    """The stub of an architecture. Raises InputError if it is not supported."""
    found: GdbStub = feature(arch, "gdb_stub")
    return found
