# SPDX-License-Identifier: MIT
"""Registers of arguments on s390x: s390x ELF ABI, "Parameter Passing" and "Return Values"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

GENERAL: Final = tuple(range(2, 7))
"""Registers for arguments: r2 to r6."""
VECTORS: Final = tuple(range(16, 20))
"""Floating-point registers for arguments, by DWARF number: f0, f2, f4, f6."""
SIZES: Final = (1, 2, 4, 8)
"""Bytes of what is passed itself: anything else is passed by its address."""


class _Abi:
    registers = GENERAL
    others = ()
    vectors = VECTORS
    word = 8
    copies = True

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """A result in memory has its address in r2. A value in a register is at its right end."""
        used = int(result is not None and _returned_in_memory(result))
        vectors, out = 0, []
        for one in arguments:
            if any(part.sort is Sort.VECTOR for part in one.scalars):
                raise UnclearError  # in a vector register, if the compiler uses these
            address = one.by_reference or one.size not in SIZES
            if not address and _is_float(one):
                held = vectors if vectors < len(VECTORS) else LOST
                missing = "stack" if held == LOST else "float"
                told = () if held == LOST else (held,)
                out.append(Place(words=(LOST,), missing=missing, vectors=told))
                vectors += held != LOST
                continue
            word = used if used < len(GENERAL) else LOST
            missing = "stack" if word == LOST else "float"
            out.append(Place(words=(word,), missing=missing, address=address))
            used = min(used + 1, len(GENERAL))
        return out

    def returned(self, result: Passed) -> Place:
        """In r2 or f0, as an argument of that type; by its address, what is larger and every
        structure."""
        if _returned_in_memory(result):
            return Place(words=(0,), missing="stack", address=True)
        (place,) = self.place([result], None)
        return place


def _returned_in_memory(result: Passed) -> bool:
    if any(part.sort is Sort.VECTOR for part in result.scalars):
        raise UnclearError
    return result.composite or result.by_reference or result.size not in SIZES


def _is_float(one: Passed) -> bool:
    """Return whether it is a float or a double, or a structure of nothing else. Raises UnclearError
    where compilers disagree: on empty members."""
    if one.union or not any(part.sort is Sort.FLOAT for part in one.scalars):
        return False
    if any(part.sort is Sort.EMPTY for part in one.scalars):
        raise UnclearError
    return len(one.scalars) == 1 and one.scalars[0].size == one.size


ARGUMENTS: Final = _Abi()
