# SPDX-License-Identifier: MIT
"""Registers of ppc64le: r3 and so on, by the kernel's names for probes (gpr3, link, nip: ptrace.c),
and those of the calling convention (psABI, ELFv2, 2.2.1)."""

from __future__ import annotations

from typing import Final

from ftpatch.arch.registers import Registers

__all__ = ["REGISTERS"]

LR, CTR, CR, XER = range(32, 36)
"""Numbers of register_() in stubs/ppc64le/arch.h (enum register_number)."""
REGISTERS: Final = Registers(
    numbers={f"r{n}": n for n in range(32)}
    | {"lr": LR, "ctr": CTR, "cr": CR, "xer": XER}
    | {f"gpr{n}": n for n in range(32)}
    | {"link": LR, "ccr": CR, "sp": 1},
    pc=frozenset({"nip", "pc"}),
    stack=1,
    result=3,
    results=("r3", "r4"),
    returns_address=False,  # 2.2.5: r3 need not be kept
    arguments=tuple(range(3, 11)),
    behind=12,  # 32 bytes of the caller's frame, and room for eight registers
    room=12,
    kernel={"pc": "nip", "lr": "link", "cr": "ccr", "sp": "gpr1"}
    | {f"r{n}": f"gpr{n}" for n in range(32)},
    vectors=(*(f"f{n}" for n in range(1, 32)), "f0"),
    stacked=32,  # a register holds a float as a double
    copied=LR,
    kept=(LR, 1, *range(18, 32)),
)
