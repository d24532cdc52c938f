# SPDX-License-Identifier: MIT
"""Registers of arguments on arm64: Procedure Call Standard (AAPCS64), section 6.8.2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

GENERAL = 8
"""Registers for arguments: x0 to x7. The last two are not recorded."""
VECTORS = range(64, 72)
"""Vector registers for arguments, by DWARF number: v0 to v7."""
FLOATS = (Sort.FLOAT, Sort.EXTENDED, Sort.VECTOR)
MAX_MEMBERS = 4
"""Members of a homogeneous aggregate (section 5.9.5)."""
MAX_SIZE = 16
"""Bytes of another composite that is passed itself."""


class _Aapcs64:
    registers = tuple(range(WORDS))
    others = ()
    vectors = tuple(VECTORS)
    word = 8
    copies = False

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """The address of a result in memory is in x8 and takes no register of these."""
        _homogeneous(result) if result else None
        used, vectors, out = 0, 0, []
        for one in arguments:
            size, address = one.size, one.by_reference
            if not address and (wants := _homogeneous(one)):
                words = (LOST,) * -(-size // 8)
                if vectors + wants > len(VECTORS):
                    vectors = len(VECTORS)
                    out.append(Place(words=words, missing="stack"))
                    continue
                held = (vectors, *words[1:]) if not one.composite else ()
                if len(words) == wants:
                    held = tuple(range(vectors, vectors + wants))
                out.append(Place(words=words, missing="float", vectors=held))
                vectors += wants
                continue
            if one.composite and size > MAX_SIZE:
                address = True  # of a copy
            if address:
                size = 8
            elif any(part.size == MAX_SIZE for part in one.scalars):
                used += used % 2
            wants = -(-size // 8)
            if used + wants > GENERAL:
                used = GENERAL
                out.append(Place(words=(LOST,) * wants, missing="stack", address=address))
                continue
            words = tuple(n if n < WORDS else LOST for n in range(used, used + wants))
            out.append(Place(words=words, missing="not recorded", address=address))
            used += wants
        return out

    def returned(self, result: Passed) -> Place:
        """As an argument of that type."""
        (place,) = self.place([result], None)
        return place


def _homogeneous(one: Passed) -> int:
    """Count the vector registers that an argument goes to, if as many are free, and else to the
    stack; 0 for one that goes to neither."""
    parts = [part for part in one.scalars if part.sort is not Sort.EMPTY]
    if any(part.sort is Sort.VECTOR and part.size not in (8, 16) for part in parts):
        raise UnclearError
    if not parts or any(part.sort not in FLOATS for part in parts):
        return 0
    if not one.composite:
        return 1
    if len(parts) < len(one.scalars):
        raise UnclearError  # compilers disagree on empty members
    size = parts[0].size
    alike = all(part.size == size and part.sort is parts[0].sort for part in parts)
    places = len({part.offset for part in parts})
    return places if alike and places <= MAX_MEMBERS and places * size == one.size else 0


ARGUMENTS: Final = _Aapcs64()
