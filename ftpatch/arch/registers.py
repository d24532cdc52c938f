"""Registers of a probed program: how %REG names them, and what a function's caller put there.

Numbers are those of register_() in stubs/ARCH/arch.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["REGISTERS", "Registers"]


@dataclass(frozen=True)
class Registers:
    """``numbers`` by name; ``pc``: names of the address itself; ``stack`` and ``result``: numbers
    of the stack pointer and of what returns a value; ``arguments``: numbers, in their order;
    ``behind``: words of the stack in front of the further arguments when a function is entered."""

    numbers: Mapping[str, int]
    pc: frozenset[str]
    stack: int
    result: int
    arguments: tuple[int, ...]
    behind: int

    @property
    def names(self) -> frozenset[str]:
        """All that %REG may name."""
        return frozenset(self.numbers) | self.pc


def _x86_64() -> Registers:
    # In the order in which instructions number them; ptrace.c of the kernel leaves the r out.
    old = ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di")
    numbers = {name: n for n, name in enumerate(old)}
    numbers |= {f"r{name}": n for name, n in numbers.items()}
    numbers |= {f"r{n}": n for n in range(8, 16)} | {"flags": 16}
    # System V psABI, figure 3.4: rdi, rsi, rdx, rcx, r8, r9; the return address is on the stack.
    return Registers(numbers, frozenset({"ip", "rip"}), 4, 0, (7, 6, 2, 1, 8, 9), 1)


def _arm64() -> Registers:
    numbers = {f"x{n}": n for n in range(31)} | {"lr": 30, "sp": 31, "pstate": 32}
    return Registers(numbers, frozenset({"pc"}), 31, 0, tuple(range(8)), 0)  # AAPCS64, 6.4


REGISTERS: Mapping[str, Registers] = {"x86_64": _x86_64(), "arm64": _arm64()}
