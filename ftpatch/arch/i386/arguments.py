# SPDX-License-Identifier: MIT
"""Arguments on i386: words of the stack, in order (System V psABI for i386, section 2.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

MAX_SIZE = 12
"""Bytes of a scalar that is aligned to words: a long double."""


class _SystemV:
    registers = ()
    vectors = ()
    word = 4

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
