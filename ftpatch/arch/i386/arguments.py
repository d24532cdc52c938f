# SPDX-License-Identifier: MIT
"""Arguments on i386: words of the stack, in order (System V psABI for i386, section 2.2.3).

Results are in eax and edx, floats in st(0), and structures where eax points to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

FLOATS = (Sort.FLOAT, Sort.EXTENDED)
MAX_SIZE = 12
"""Bytes of a scalar that is aligned to words: a long double."""


class _SystemV:
    registers = ()
    others = (0, 2, 1)  # eax, edx, ecx, of regparm, fastcall and local functions
    vectors = (11,)  # st(0): psABI for i386, table 2.14
    word = 4
    copies = False

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """A result in memory has its address in the first word."""
        used, out = int(result is not None and _in_memory(result)), []
        for one in arguments:
            _require_words(one)
            wants = 1 if one.by_reference else -(-one.size // 4)
            words = tuple(n if n < WORDS else LOST for n in range(used, used + wants))
            out.append(Place(words=words, missing="not recorded", address=one.by_reference))
            used += wants
        return out

    def returned(self, result: Passed) -> Place:
        """A complex float is in eax and edx too."""
        if _in_memory(result):
            return Place(words=(0,), address=True)
        if len(result.scalars) == 1 and result.scalars[0].sort in FLOATS:
            return Place(words=(LOST,), missing="float", vectors=(0,))
        return Place(words=tuple(range(-(-result.size // 4))))


def _in_memory(result: Passed) -> bool:
    _require_words(result)
    pair = len(result.scalars) > 1 and result.size > 8  # a complex double
    return result.composite or result.by_reference or pair


def _require_words(one: Passed) -> None:
    empty = one.size == 1 and not any(part.size for part in one.scalars)
    if empty and not one.by_reference:
        raise UnclearError  # compilers disagree on C++'s empty classes
    if any(part.sort is Sort.VECTOR or part.size > MAX_SIZE for part in one.scalars):
        raise UnclearError


ARGUMENTS: Final = _SystemV()
