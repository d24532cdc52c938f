# SPDX-License-Identifier: MIT
"""Registers of arm64."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

REGISTERS: Final = Registers(
    numbers={f"x{n}": n for n in range(31)} | {"lr": 30, "sp": 31, "pstate": 32},
    pc=frozenset({"pc"}),
    stack=31,
    result=0,
    results=("x0", "x1"),
    returns_address=False,  # AAPCS64, 6.9: x8 need not be kept
    arguments=tuple(range(8)),  # AAPCS64, 6.4
    behind=0,
    kernel={},
    vectors=tuple(f"v{n}" for n in range(32)),
    copied=16,
)
