# SPDX-License-Identifier: MIT
"""Arguments on 32-bit ARM: AAPCS32, "Parameter Passing" and "VFP co-processor register usage", as
armhf has it (a `double` in d0 to d7, a `float` in s0 to s15, which are their halves).

The words are r0 to r3, then those of the stack, of which the tracer records the first two. What has
members of 8 bytes begins at an even register, and at a multiple of 8 bytes. Variadic functions take
floating-point numbers as others take integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

GENERAL = 4
"""Registers for arguments: r0 to r3."""
SINGLES = 16
"""Registers for floats: s0 to s15."""
DOUBLES = SINGLES // 2
MAX_MEMBERS = 4
"""Members of a homogeneous aggregate."""
WORD = 4


class _Aapcs:
    registers = tuple(range(GENERAL))
    others = ()
    vectors = (*range(256, 256 + DOUBLES), *range(64, 64 + SINGLES))  # d0 to d7, s0 to s15
    word = WORD
    copies = False

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """A result in memory has its address in r0."""
        return _Walk(result).placed(arguments, floats=True)

    def place_variadic(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """Of a function that takes further ones."""
        return _Walk(result).placed(arguments, floats=False)

    def returned(self, result: Passed) -> Place:
        """A structure of more than a word has its address in r0 at the entry alone."""
        if _in_memory(result):
            return Place(words=(0,), address=True)
        (place,) = _Walk(None).placed([result], floats=True)
        return place


class _Walk:
    """The next general register, the free ones of VFP, the next byte of the stack."""

    def __init__(self, result: Passed | None) -> None:
        self._used = int(result is not None and _in_memory(result))
        self._free = set(range(SINGLES))
        self._stack = 0

    def placed(self, arguments: Sequence[Passed], *, floats: bool) -> list[Place]:
        """Place arguments in order."""
        out = []
        for one in arguments:
            parts = _homogeneous(one) if floats else ()
            out.append(self._vectors(one, parts) if parts else self._general(one))
        return out

    def _vectors(self, one: Passed, sizes: Sequence[int]) -> Place:
        """In the first registers that are free, also before those of others; once they do not
        suffice, there are none any more."""
        step, count = sizes[0] // WORD, len(sizes)
        for first in range(0, SINGLES - step * count + 1, step):
            taken = range(first, first + step * count)
            if self._free.issuperset(taken):
                self._free -= set(taken)
                return _in_vectors(one, first)
        self._free = set()
        return self._on_stack(one)

    def _general(self, one: Passed) -> Place:
        """In general registers, the rest of it on the stack, if nothing is there yet."""
        wants = 1 if one.by_reference else -(-one.size // WORD)
        if not one.by_reference and _alignment(one) == 2 * WORD:
            self._used += self._used % 2
        if self._used + wants > GENERAL and (self._used >= GENERAL or self._stack):
            self._used = GENERAL
            return self._on_stack(one)
        words = range(self._used, self._used + wants)
        self._used = min(words.stop, GENERAL)
        self._stack += WORD * max(words.stop - GENERAL, 0)
        return Place(
            words=tuple(word if word < WORDS else LOST for word in words),
            missing="stack",
            address=one.by_reference,
        )

    def _on_stack(self, one: Passed) -> Place:
        if not one.by_reference and _alignment(one) == 2 * WORD:
            self._stack += self._stack % (2 * WORD)
        first = self._stack // WORD
        wants = 1 if one.by_reference else -(-one.size // WORD)
        self._stack += WORD * wants
        words = range(GENERAL + first, GENERAL + first + wants)
        return Place(
            words=tuple(word if word < WORDS else LOST for word in words),
            missing="stack",
            address=one.by_reference,
            stack=first,
        )


def _in_vectors(one: Passed, first: int) -> Place:
    """From s register ``first`` on: doubles and pairs of floats have 8 bytes of a register."""
    words = (LOST,) * -(-one.size // WORD)
    if one.size == WORD:
        return Place(words=words, missing="float", vectors=(DOUBLES + first,))
    if first % 2:
        return Place(words=words, missing="float")  # the halves of two
    held = tuple(range(first // 2, first // 2 + -(-one.size // (2 * WORD))))
    return Place(words=(LOST,) * len(held), missing="float", vectors=held)


def _in_memory(result: Passed) -> bool:
    if _homogeneous(result):
        return False
    return result.by_reference or (result.composite and result.size > WORD)


def _homogeneous(one: Passed) -> tuple[int, ...]:
    """The sizes of the one to four members of the same floating-point type; none for others."""
    _require_known(one)
    if one.by_reference:
        return ()
    sizes = {part.size for part in one.scalars}
    floats = sum(part.sort is Sort.FLOAT for part in one.scalars)
    if floats and floats == len(one.scalars) and (one.union or not sizes <= {WORD, 2 * WORD}):
        raise UnclearError  # one member may stand for several; __fp16
    same = floats == len(one.scalars) <= MAX_MEMBERS and len(sizes) == 1
    if not floats or not same or one.size != sum(part.size for part in one.scalars):
        return ()
    return tuple(part.size for part in one.scalars)


def _require_known(one: Passed) -> None:
    if one.by_reference:
        return
    sorts = {part.sort for part in one.scalars}
    if one.size and sorts == {Sort.EMPTY}:
        raise UnclearError  # an empty class, which compilers pass in their own ways
    if Sort.EMPTY in sorts and Sort.FLOAT in sorts:
        raise UnclearError
    if sorts & {Sort.VECTOR, Sort.EXTENDED}:
        raise UnclearError


def _alignment(one: Passed) -> int:
    """Of a packed structure it is a word, whatever is in it."""
    packed = any(part.offset % part.size for part in one.scalars if part.size)
    wide = one.widest >= 2 * WORD and one.size % (2 * WORD) == 0
    return 2 * WORD if wide and not packed else WORD


ARGUMENTS: Final = _Aapcs()
