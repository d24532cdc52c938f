"""Registers of a probed program: how %REG names them, and what a function's caller put there.

Numbers are those of register_() in stubs/ARCH/arch.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ftpatch.arch import feature

__all__ = ["Registers", "registers_of"]


@dataclass(frozen=True, kw_only=True)
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


def registers_of(arch: str) -> Registers:
    """The registers of an architecture. Raises InputError where they are not known."""
    found: Registers = feature(arch, "registers")
    return found
