# SPDX-License-Identifier: MIT
"""Registers of arguments on x86_64: System V psABI, section 3.2.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ftpatch.arch.arguments import LOST, WORDS, Passed, Place, Sort, UnclearError

__all__ = ["ARGUMENTS"]

NONE, INTEGER, SSE, UP, X87 = range(5)
"""Classes of an eightbyte; UP: the upper half of what begins in the one before."""
VECTORS = range(17, 25)
"""Vector registers for arguments, by DWARF number: xmm0 to xmm7."""
MAX_SIZE = 16
"""Bytes of a composite that may be in registers."""


class _SystemV:
    registers = (5, 4, 1, 2, 8, 9)  # rdi, rsi, rdx, rcx, r8, r9: psABI, figure 3.36
    others = ()
    vectors = tuple(VECTORS)
    word = 8
    copies = False

    def place(self, arguments: Sequence[Passed], result: Passed | None) -> list[Place]:
        """A result in memory has its address in the first register."""
        used = int(result is not None and self._in_memory(result))
        vectors, out = 0, []
        for one in arguments:
            if one.by_reference:
                out.append(
                    Place(words=(used if used < WORDS else LOST,), missing="stack", address=True)
                )
                used = min(used + 1, WORDS)
                continue
            classes = _classes(one)
            wants, more = (classes or []).count(INTEGER), (classes or []).count(SSE)
            apart = classes is None or X87 in classes
            if apart or used + wants > WORDS or vectors + more > len(VECTORS):
                out.append(Place(words=(LOST,) * -(-one.size // 8), missing="stack"))
                continue
            words, held = [], []
            for kind in classes or []:
                words.append(used if kind == INTEGER else LOST)
                held.append(vectors if kind == SSE else LOST)
                used += kind == INTEGER
                vectors += kind == SSE
            out.append(
                Place(words=tuple(words), missing="float", vectors=tuple(held) if more else ())
            )
        return out

    def returned(self, result: Passed) -> Place:
        """As an argument of that type."""
        (place,) = self.place([result], None)
        return place

    @staticmethod
    def _in_memory(result: Passed) -> bool:
        if result.by_reference:
            return True
        if any(one.sort is Sort.VECTOR and one.size > MAX_SIZE for one in result.scalars):
            raise UnclearError  # it depends on the processor that the compiler knew
        return result.composite and _classes(result) is None


def _classes(one: Passed) -> list[int] | None:
    """The class of each eightbyte; None for memory."""
    if any(part.sort is Sort.VECTOR and part.size not in (8, 16) for part in one.scalars):
        raise UnclearError
    if not one.composite:
        return _merged(one)
    if one.size > MAX_SIZE:
        return None
    if any(part.size and part.offset % part.size for part in one.scalars):
        return None  # packed
    return _merged(one)


def _merged(one: Passed) -> list[int] | None:
    classes = [NONE] * -(-one.size // 8)
    for part in one.scalars:
        first = part.offset // 8
        kinds = {
            Sort.INTEGER: [INTEGER, INTEGER],
            Sort.FLOAT: [SSE, UP],
            Sort.VECTOR: [SSE, UP],
            Sort.EXTENDED: [X87, X87],
            Sort.EMPTY: [],
        }[part.sort]
        for place, kind in enumerate(kinds[: -(-part.size // 8)], first):
            if place >= len(classes):
                raise UnclearError
            held = classes[place]
            if INTEGER in (held, kind):
                classes[place] = INTEGER
            elif X87 in (held, kind) and held not in (kind, NONE):
                return None
            else:
                classes[place] = kind if held == NONE else min(held, kind)
    for place, kind in enumerate(classes):
        before = classes[place - 1] if place else NONE
        if kind == X87 and place % 2 and before != X87:
            return None
        if kind == UP and before not in (SSE, UP):
            classes[place] = SSE
    return classes if any(classes) else []


ARGUMENTS: Final = _SystemV()
