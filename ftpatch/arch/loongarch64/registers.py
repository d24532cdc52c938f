# SPDX-License-Identifier: MIT
"""Registers of loongarch64: by the names that the kernel has for probes
(arch/loongarch/kernel/ptrace.c), which
are their numbers, and by those of the calling convention (LoongArch ELF psABI, "Register
Convention")."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.loongarch64.instructions import REGISTERS as NAMES
from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

_FLOATS: Final = (
    *(f"fa{n}" for n in range(8)),
    *(f"ft{n}" for n in range(16)),
    *(f"fs{n}" for n in range(8)),
)
REGISTERS: Final = Registers(
    numbers={name.removeprefix("$"): n for n, name in enumerate(NAMES)}
    | {f"r{n}": n for n in range(32)}
    | {"s9": 22},
    pc=frozenset({"csr_era", "pc"}),
    stack=3,
    result=4,
    results=("a0", "a1"),
    returns_address=False,
    arguments=tuple(range(4, 12)),  # a0 to a7
    behind=0,
    kernel={"pc": "csr_era", "s9": "r22"}
    | {name.removeprefix("$"): f"r{n}" for n, name in enumerate(NAMES)},
    vectors=_FLOATS,
    copied=1,
    kept=(*range(1, 4), *range(19, 32)),
)
