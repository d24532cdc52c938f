# SPDX-License-Identifier: MIT
"""Registers of s390x: by the kernel's names for probes (arch/s390/kernel/ptrace.c), and those of
the calling convention (s390x ELF ABI, "Registers")."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers
from ftpatch.core.byte_order import BIG

__all__ = ["REGISTERS"]

REGISTERS: Final = Registers(
    numbers={f"r{n}": n for n in range(16)} | {"sp": 15},
    pc=frozenset({"pc"}),
    stack=15,
    result=2,
    results=("r2",),  # structures are returned in memory
    returns_address=False,  # r2 need not be kept
    arguments=tuple(range(2, 7)),  # r2 to r6
    behind=20,  # the register save area
    kernel={"sp": "r15"},
    vectors=tuple(f"f{n}" for n in range(16)),
    copied=0,  # all of them
    framed=False,  # -mbackchain is not the default
    stacked=16,
    order=BIG,
)
