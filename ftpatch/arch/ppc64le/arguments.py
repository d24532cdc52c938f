# SPDX-License-Identifier: MIT
"""Registers of arguments on ppc64le: psABI, ELFv2, 2.2.4 ("Parameter Passing in Registers") and
2.2.5 ("Return Values").

Each argument takes doublewords of the caller's parameter save area, in order, of which the first
eight are r3 to r10. A floating-point one takes those too, and is in f1 to f13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

GENERAL = 8
"""Registers for arguments: r3 to r10. The last two are not recorded."""
FIRST = 3
"""DWARF number of r3."""
VECTORS = range(33, 46)
"""Floating-point registers for arguments, by DWARF number: f1 to f13."""
MAX_MEMBERS = 8
"""Members of a homogeneous aggregate (2.2.4)."""
MAX_SIZE = 16
"""Bytes of another aggregate that is returned in registers."""
MAX_WIDTH = 8
"""Bytes of a register. What is wider may begin at an even doubleword, or be in two registers."""


class _Elfv2:
    registers = tuple(range(FIRST, FIRST + WORDS))
    others = ()
    vectors = tuple(VECTORS)
    word = 8
    copies = False

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """A result in memory has its address in r3."""
        used = int(result is not None and _in_memory(result))
        vectors, unsure, apart, out = 0, False, False, list[Place]()
        for one in arguments:
            used += _skipped(one, used)
            floats = 0 if one.by_reference else _homogeneous(one)
            wants = 1 if one.by_reference else -(-one.size // 8)
            free = range(used, max(used, min(used + wants, GENERAL)))
            if floats:
                if unsure:
                    raise UnclearError
                out.append(_floats(one, floats, vectors))
                vectors += floats
                wants = wants if one.composite else floats  # each part of a complex number
                apart |= used + wants > GENERAL
            elif any(part.sort is Sort.EXTENDED for part in one.scalars):
                out.append(Place(words=(LOST,) * wants, missing="float"))
                unsure, apart = True, apart or used + wants > GENERAL
            else:
                words = [n if n < WORDS else LOST for n in free] + [LOST] * (wants - len(free))
                missing = "stack" if len(free) < wants else "not recorded"
                if missing == "stack" and apart:
                    missing = "behind others on the stack"
                apart |= 0 < len(free) < wants - 1
                known = used if free and used >= WORDS else LOST
                address = one.by_reference
                place = Place(words=tuple(words), missing=missing, address=address, register=known)
                out.append(place)
            used += wants
        return out

    def returned(self, result: Passed) -> Place:
        """As an argument of that type; what is in memory has its address nowhere."""
        if _in_memory(result):
            raise UnclearError
        (place,) = self.place([result], None)
        return place


def _in_memory(one: Passed) -> bool:
    """Return whether a result is in memory."""
    if one.by_reference:
        return True
    if not one.composite or one.size <= MAX_SIZE:
        return False
    return not _homogeneous(one)


def _skipped(one: Passed, used: int) -> int:
    """Count the doublewords before an argument that is aligned to two, behind ``used`` ones. An
    __int128 by itself is not; a long double is in one of two forms, of which one is."""
    if one.by_reference or used % 2 == 0:
        return 0
    wide = any(part.size > MAX_WIDTH for part in one.scalars)
    if one.composite and not one.scalars and one.size > MAX_SIZE:
        raise UnclearError  # too large for its members to be known
    if wide and not one.composite and one.scalars[0].sort is Sort.EXTENDED:
        raise UnclearError
    return int(wide and one.composite)


def _homogeneous(one: Passed) -> int:
    """Count the floating-point registers that a value goes to; 0 for one that goes to others."""
    parts = [part for part in one.scalars if part.sort is not Sort.EMPTY]
    others = [part for part in parts if part.sort is not Sort.FLOAT]
    extended = any(part.sort is Sort.EXTENDED for part in parts)
    if any(part.sort is Sort.VECTOR for part in parts) or (extended and len(one.scalars) > 1):
        raise UnclearError
    if not others and any(part.size > MAX_WIDTH for part in parts):
        raise UnclearError
    if not others and len(parts) < len(one.scalars):
        raise UnclearError  # compilers disagree on empty members
    if len(parts) > 1 and not one.composite and others:
        raise UnclearError  # a complex number of integers
    if not parts or others:
        return 0
    size = parts[0].size
    places = len({part.offset for part in parts})
    alike = all(part.size == size for part in parts) and places * size == one.size
    return places if alike and places <= MAX_MEMBERS else 0


def _floats(one: Passed, floats: int, vectors: int) -> Place:
    """Place so many floats from a vector register on; several in one word are told by none."""
    words = (LOST,) * -(-one.size // 8)
    if vectors + floats > len(VECTORS):
        if one.composite:
            raise UnclearError  # the rest is where other arguments are
        return Place(words=words, missing="stack")
    held = tuple(range(vectors, vectors + floats)) if len(words) == floats else ()
    return Place(words=words, missing="float", vectors=held)


ARGUMENTS: Final = _Elfv2()
