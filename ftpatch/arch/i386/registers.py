# SPDX-License-Identifier: MIT
"""Registers of i386, by the kernel's names for probes and by the manual's."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

# In the order in which instructions number them; ptrace.c of the kernel leaves the e out.
_OLD = {name: n for n, name in enumerate(("ax", "cx", "dx", "bx", "sp", "bp", "si", "di"))}
_WIDE = {f"e{name}": n for name, n in _OLD.items()}

REGISTERS: Final = Registers(
    numbers=_OLD | _WIDE | {"flags": 8},
    pc=frozenset({"ip", "eip"}),
    stack=4,
    result=0,
    results=("eax", "edx"),
    returns_address=True,  # of a structure: psABI for i386, 2.2.3
    arguments=(),  # all are on the stack, psABI for i386, 2.2.3
    behind=1,  # the return address
    kernel={f"e{name}": name for name in (*_OLD, "ip")},
    vectors=(*(f"st{n}" for n in range(8)), *(f"xmm{n}" for n in range(8))),
    stacked=8,
    word=4,
    paired=16,
    copied=0,
)
