# SPDX-License-Identifier: MIT
"""Registers of 32-bit ARM: by their numbers, by the kernel's names for probes (ptrace.c), and by
those of the calling convention (AAPCS32, "Core registers")."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

REGISTERS: Final = Registers(
    numbers={f"r{n}": n for n in range(15)}
    | {"sb": 9, "sl": 10, "fp": 11, "ip": 12, "sp": 13, "lr": 14, "cpsr": 15, "flags": 15},
    pc=frozenset({"pc", "r15"}),
    stack=13,
    result=0,
    results=("r0", "r1"),
    returns_address=False,  # AAPCS32, "Result Return": r0 need not be kept
    arguments=(0, 1, 2, 3),
    behind=0,
    kernel={"r11": "fp", "r12": "ip", "r13": "sp", "r14": "lr", "r15": "pc"}
    | {"sb": "r9", "sl": "r10", "flags": "cpsr"},
    vectors=(*(f"d{n}" for n in range(16)), *(f"s{n}" for n in range(32))),
    word=4,
    paired=16,
)
