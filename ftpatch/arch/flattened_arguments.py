# SPDX-License-Identifier: MIT
"""Registers of arguments where structures of one or two scalars are flattened: on riscv64 (RISC-V
psABI, "Integer Calling Convention" and "Hardware Floating-point Calling Convention") and
loongarch64 (LoongArch psABI, "Procedure Calling Convention"), with floating-point registers of 64
bits (lp64d)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Scalar, Sort, UnclearError

__all__ = ["Flattened"]

GENERAL: Final = 8
"""Registers for arguments: a0 to a7. The last two are not recorded."""
FLOATS: Final = 8
"""Floating-point registers for arguments: fa0 to fa7."""
MAX_SIZE: Final = 16
"""Bytes of what is passed itself: two registers."""
MAX_WIDTH: Final = 8
"""Bytes of a floating-point register and of a general one."""


@dataclass(frozen=True, kw_only=True)
class Flattened:
    """A convention, by the DWARF numbers of ``a0`` and ``fa0``."""

    a0: int
    fa0: int
    others: tuple[int, ...] = ()
    word: int = 8
    copies: bool = False

    @property
    def registers(self) -> tuple[int, ...]:
        """From a0 on."""
        return tuple(range(self.a0, self.a0 + WORDS))

    @property
    def vectors(self) -> tuple[int, ...]:
        """fa0 to fa7."""
        return tuple(range(self.fa0, self.fa0 + FLOATS))

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """A result in memory has its address in a0."""
        used = int(result is not None and _in_memory(result))
        vectors, out = 0, []
        for one in arguments:
            address = _in_memory(one)
            if not address and one.size and all(part.sort is Sort.EMPTY for part in one.scalars):
                raise UnclearError  # an empty class: gcc passes it, clang does not
            parts = () if address else _flat(one)
            floats = sum(part.sort is Sort.FLOAT for part in parts)
            wants = len(parts) - floats
            if floats and vectors + floats <= FLOATS and used + wants <= GENERAL:
                out.append(_split(one, parts, used, vectors))
                used, vectors = used + wants, vectors + floats
                continue
            wants = 1 if address else -(-one.size // 8)
            free = range(used, min(used + wants, GENERAL))  # the second half may be on the stack
            words = [n if n < WORDS else LOST for n in free] + [LOST] * (wants - len(free))
            missing = "stack" if len(free) < wants else "not recorded"
            known = used if free and used >= WORDS else LOST
            out.append(Place(words=tuple(words), missing=missing, address=address, register=known))
            used += len(free)
        return out

    def returned(self, result: Passed) -> Place:
        """As an argument of that type."""
        (place,) = self.place([result], None)
        return place


def _in_memory(one: Passed) -> bool:
    """Return whether an argument is passed by its address."""
    return one.by_reference or one.size > MAX_SIZE


def _flat(one: Passed) -> tuple[Scalar, ...]:
    """The one or two scalars of an argument that goes to floating-point registers as long as there
    are any, each to a register of its sort; none for another one."""
    parts = [part for part in one.scalars if part.sort is not Sort.EMPTY]
    floats = sum(part.sort is Sort.FLOAT for part in parts)
    if not floats or one.union:  # which is not flattened
        return ()
    if len(parts) < len(one.scalars):
        raise UnclearError  # compilers disagree on empty members
    bits = [part for part in parts if part.sort is Sort.INTEGER]
    if floats == 1 and len(bits) == 2 and {part.size for part in bits} == {1}:
        raise UnclearError  # a bit-field, or two characters
    fits = all(part.size <= MAX_WIDTH for part in parts) and len(parts) <= 2
    known = all(part.sort in (Sort.FLOAT, Sort.INTEGER) for part in parts)
    return tuple(sorted(parts, key=lambda part: part.offset)) if fits and known else ()


def _split(one: Passed, parts: Sequence[Scalar], used: int, vectors: int) -> Place:
    """Place scalars each in a register, from general register ``used`` and vector ``vectors`` on;
    two that share a word are told by no word."""
    count = -(-one.size // 8)
    words, held = [LOST] * count, [LOST] * count
    if len({part.offset // 8 for part in parts}) < len(parts):
        return Place(words=tuple(words), missing="float")
    for part in parts:
        if part.sort is Sort.FLOAT:
            held[part.offset // 8] = vectors
            vectors += 1
        else:
            words[part.offset // 8] = used if used < WORDS else LOST
    return Place(words=tuple(words), missing="float", vectors=tuple(held))
