# SPDX-License-Identifier: MIT
"""Registers of riscv64: by the kernel's names for probes (ptrace.c), by their numbers, and by those
of the calling convention (RISC-V psABI, "Register Convention")."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

_NAMES: Final = (
    *("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{n}" for n in range(8)),
    *(f"s{n}" for n in range(2, 12)),
    *(f"t{n}" for n in range(3, 7)),
)
_FLOATS: Final = (
    *(f"fa{n}" for n in range(8)),  # f10 to f17
    *(f"ft{n}" for n in range(8)),  # f0 to f7
    *("fs0", "fs1"),
    *(f"fs{n}" for n in range(2, 12)),  # from f18 on
    *(f"ft{n}" for n in range(8, 12)),
)
REGISTERS: Final = Registers(
    numbers={name: n for n, name in enumerate(_NAMES)}
    | {f"x{n}": n for n in range(32)}
    | {"fp": 8},
    pc=frozenset({"epc", "pc"}),
    stack=2,
    result=10,
    results=("a0", "a1"),
    returns_address=False,  # "Integer Calling Convention": a0 need not be kept
    arguments=tuple(range(10, 18)),  # a0 to a7
    behind=0,
    kernel={"pc": "epc", "fp": "s0"} | {f"x{n}": name for n, name in enumerate(_NAMES) if n},
    vectors=_FLOATS,
    copied=1,
    kept=(*range(1, 5), 8, 9, *range(18, 28)),
)
