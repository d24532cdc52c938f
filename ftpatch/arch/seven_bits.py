# SPDX-License-Identifier: MIT
"""Events of boot tracers in bytes of seven bits: for ways that do not take every byte.

    | marker | place (5) | return (5) | stack pointer | time (9) |
    each part: seven bits per byte, lowest first, with the highest bit set

No byte is a NUL, where a call writes up to that, nor one that a console changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events

__all__ = ["MARKER", "SevenBits", "text_of"]

MARKER = 0x01
"""The first byte of each event."""
OWN = bytes([MARKER, *range(0x80, 0x100)])
"""All bytes that they consist of."""


@dataclass(frozen=True, kw_only=True)
class SevenBits:
    """Bytes of each part: a ``place``, of 32 bits, is also where the function returns; ``sp`` is
    without its ``grain`` lowest bits, which the ABI keeps zero; above what is told of it, its
    highest bit is repeated."""

    place: int = 5
    sp: int
    time: int = 9
    grain: int = 4

    def size(self, *, time: bool, back: bool = True) -> int:
        """Bytes of an event, with its marker."""
        return 1 + self.place * (1 + back) + self.sp + self.time * time

    def read(self, rows: NDArray[np.uint8], *, time: bool, back: bool = True) -> Events:
        """Decode events, uint8[n, size]. One with an impossible byte gets an impossible stack
        pointer."""
        place = _distance(rows[:, 1 : 1 + self.place])
        at = 1 + self.place * (1 + back)
        returns = _distance(rows[:, 1 + self.place : at]) if back else None
        sp = _number(rows[:, at : at + self.sp]) << np.uint64(self.grain)
        told = 7 * self.sp + self.grain
        above = np.uint64(-(1 << told) % (1 << 64))
        sp |= np.where(sp >> np.uint64(told - 1) > 0, above, np.uint64(0))
        sp += (rows[:, 1:] < 0x80).any(axis=1).astype(np.uint64)
        at += self.sp
        ticks = _number(rows[:, at:]) if time else np.arange(len(rows), dtype=np.uint64)
        return Events(place, sp, ticks, returns)


def text_of(raw: bytes) -> bytes:
    """Remove the bytes of events from a console's, which are ASCII."""
    return raw.translate(None, OWN)


def _distance(columns: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Decode signed 32-bit numbers, int64[n]."""
    return _number(columns).astype(np.uint32).view(np.int32).astype(np.int64)


def _number(columns: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Decode unsigned numbers, uint64[n]."""
    value = np.zeros(len(columns), np.uint64)
    for number in range(columns.shape[1]):
        low = (columns[:, number] & 0x7F).astype(np.uint64)
        value |= low << np.uint64(7 * number)
    return value
