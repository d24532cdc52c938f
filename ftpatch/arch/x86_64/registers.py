# SPDX-License-Identifier: MIT
"""Registers of x86_64, by the kernel's names for probes and by the manual's."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

# In the order in which instructions number them; ptrace.c of the kernel leaves the r out.
_OLD = {name: n for n, name in enumerate(("ax", "cx", "dx", "bx", "sp", "bp", "si", "di"))}
_WIDE = {f"r{name}": n for name, n in _OLD.items()}
_NEW = {f"r{n}": n for n in range(8, 16)}

REGISTERS: Final = Registers(
    numbers=_OLD | _WIDE | _NEW | {"flags": 16},
    pc=frozenset({"ip", "rip"}),
    stack=4,
    result=0,
    results=("rax", "rdx"),
    returns_address=True,  # psABI, 3.2.3, "Returning of Values"
    arguments=(7, 6, 2, 1, 8, 9),  # System V psABI, figure 3.4: rdi, rsi, rdx, rcx, r8, r9
    behind=1,  # the return address is on the stack
    kernel={f"r{name}": name for name in (*_OLD, "ip")},
    vectors=tuple(f"xmm{n}" for n in range(16)),
    copied=0,
)
