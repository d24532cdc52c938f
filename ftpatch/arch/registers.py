# SPDX-License-Identifier: MIT
"""Registers of a probed program: their %REG names, and the calling convention.

Numbers are those of register_() in stubs/ARCH/arch.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ftpatch.arch import feature
from ftpatch.core.byte_order import LITTLE, ByteOrder

__all__ = ["Registers", "registers_of"]


@dataclass(frozen=True, kw_only=True)
class Registers:
    """``numbers`` by name; ``pc``: names of the address itself; ``stack`` and ``result``: numbers
    of the stack pointer and of the return value's register; ``results``: names of those that
    return a structure, 8 bytes each; ``returns_address``: of a larger one the first has the
    address; ``arguments``: numbers, in order; ``behind``: words on the stack before further
    arguments on function entry; ``kernel``: the kernel's names (regs_query_register_offset())
    of those that only manuals call otherwise; ``copied``: number of the first register that a
    copy of a stack has (None: calls that led to a hit are not recorded), ``kept``: these, where
    they are not one after the other; ``vectors``: names of the vector registers, by their numbers
    for vector_(): the first returns a float; of the first
    ``stacked`` ones, which hold wider floats, that is the double, and the float is as many
    numbers behind the last one; ``word``: bytes of an address; ``paired``: the number of a pair
    of registers is that of the lower one, and so often the upper one's plus 1 (0: a value is in
    one register)."""

    numbers: Mapping[str, int]
    pc: frozenset[str]
    stack: int
    result: int
    results: tuple[str, ...]
    returns_address: bool
    arguments: tuple[int, ...]
    behind: int
    kernel: Mapping[str, str]
    vectors: tuple[str, ...]
    copied: int | None = None
    kept: tuple[int, ...] = ()
    order: ByteOrder = LITTLE
    word: int = 8
    paired: int = 0
    stacked: int = 0
    room: int = 0
    """Of the words ``behind``, those of the caller's frame: not the return address of a call."""

    framed: bool = True
    """A stack's frames lead to one another."""

    @property
    def pushed(self) -> int:
        """Words that a call puts on the stack."""
        return self.behind - self.room

    @property
    def names(self) -> frozenset[str]:
        """All names for %REG, but for vector registers."""
        return frozenset(self.numbers) | self.pc

    def in_copies(self, count: int) -> tuple[int, ...]:
        """The numbers of the ``count`` registers that copies of a stack have, in order."""
        first = self.copied or 0
        return self.kept or tuple(range(first, first + count))

    def pair(self, upper: str, lower: str) -> int:
        """The number of a value whose words are in two registers."""
        return self.paired * (1 + self.numbers[upper]) + self.numbers[lower]

    def vector(self, name: str, *, single: bool) -> int:
        """The number of a vector register, of which a float or anything else is wanted."""
        number = self.vectors.index(name)
        return number + len(self.vectors) * (single and number < self.stacked)


def registers_of(arch: str) -> Registers:
    """The registers of an architecture. Raises InputError if they are not supported."""
    found: Registers = feature(arch, "registers")
    return found
