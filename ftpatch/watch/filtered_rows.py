# SPDX-License-Identifier: MIT
"""Filters of watches, for many accesses at once: the same steps as the runtime takes for one
(stubs/runtime/watch_filter.c), each for all that have come to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ftpatch.inject.runtime_steps import Row, Step
from ftpatch.layout import constants

__all__ = ["FilteredRows"]

WIDTH, SIGNED, KEPT, JUMP, BELOW, EQUAL, ABOVE, BITS, FLOAT, SKIP = (
    constants[f"TEST_{name}"]
    for name in (
        "WIDTH",
        "SIGNED",
        "KEPT",
        "JUMP",
        "BELOW",
        "EQUAL",
        "ABOVE",
        "BITS",
        "FLOAT",
        "SKIP",
    )
)
INFINITY = {8: 0x7FF << 52, 4: 0x7F8 << 20}
"""The bits of binary64's and binary32's."""
Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]


@dataclass
class FilteredRows:
    """A filter of one process, which counts what comes to ``every`` and ``first``."""

    rows: Sequence[Row]
    counted: int = 0
    first: int = 0

    def forked(self) -> FilteredRows:
        """The filter of a child, which counts on from here."""
        return replace(self)

    def passing(self, words: Words) -> Mask:
        """Test which accesses are asked for, bool[n], given their words, uint64[n, WATCH_WORDS], in
        the order in which they took place."""
        count = len(words)
        at = np.zeros(count, np.int64)
        value, kept = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
        for number, (step, what, operand) in enumerate(self.rows):
            here = np.flatnonzero(at == number)
            at[here] += 1
            plain = np.uint64(operand % (1 << 64))
            match step:
                case Step.REGISTER:
                    value[here] = words[here, what]
                case Step.PLUS:
                    value[here] += plain
                case Step.COUNT:
                    reached = self.counted + 1 + np.arange(len(here))
                    value[here] = (reached % (1 << 32) % operand).astype(np.uint64)
                    self.counted = (self.counted + len(here)) % (1 << 32)
                case Step.FIRST:
                    reached = self.first + 1 + np.arange(len(here))
                    value[here] = np.minimum(reached, operand + 1).astype(np.uint64)
                    self.first = min(self.first + len(here), operand + 1)
                case Step.KEEP:
                    kept[here] = _ordered(value[here], what)
                case Step.TEST:
                    right = kept[here] if what & KEPT else np.full(len(here), plain)
                    found = _tested(_ordered(value[here], what), right, what)
                    at[here[found == bool(what & JUMP)]] += what >> SKIP
                case _:
                    pass
        return np.asarray(at == len(self.rows))


def _ordered(value: Words, what: int) -> Words:
    """Numbers of 64 bits in the order that their type says (ordered() of compared.h)."""
    beside = np.uint64(64 - (what & WIDTH) * 8)
    high = value << beside
    if what & FLOAT:
        magnitude = (high << np.uint64(1)) >> np.uint64(1) >> beside
        return np.where(high >> np.uint64(63) > 0, np.uint64(0) - magnitude, magnitude)
    if what & SIGNED:
        return (high.view(np.int64) >> beside.astype(np.int64)).view(np.uint64)
    return np.asarray(high >> beside)


def _tested(left: Words, right: Words, what: int) -> Mask:
    order = (left.view(np.int64), right.view(np.int64)) if what & SIGNED else (left, right)
    if what & BITS:
        return np.asarray((left & right) != 0)
    below, equal = np.less(*order), left == right
    found = (below & bool(what & BELOW)) | (equal & bool(what & EQUAL))
    found |= ~below & ~equal & bool(what & ABOVE)
    if what & FLOAT:  # a NaN has no order: it is != only
        unordered = _is_nan(left, what) | _is_nan(right, what)
        only = what & (BELOW | EQUAL | ABOVE) == BELOW | ABOVE
        found = np.where(unordered, only, found)
    return np.asarray(found)


def _is_nan(number: Words, what: int) -> Mask:
    held = number.view(np.int64)
    infinity = INFINITY[what & WIDTH]
    return np.asarray((held > infinity) | (held < -infinity))
