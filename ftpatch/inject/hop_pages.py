# SPDX-License-Identifier: MIT
"""The pages of hops, in memory and in the file.

    memory   | a.....b |    | ..c |      segments: the least number of pages that one spans, so that
    file     | a.c...b |                 there are program headers for all

What is between two hops of a segment belongs to no one, and is never touched: it takes addresses,
no memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ftpatch.arch.move import Mover

__all__ = ["MAX_SPAN", "HopPages", "spans"]

MAX_SPAN = 1 << 12
"""Maximum pages of one segment, and nearly of what is added to the file for them."""


def spans(pages: Sequence[int], span: int) -> list[tuple[int, int]]:
    """The fewest ranges of at most ``span`` numbers that have all of the sorted ``pages`` in them:
    first and last of each."""
    found = []
    row = 0
    while row < len(pages):
        after = bisect_left(pages, pages[row] + span, row)
        found.append((pages[row], pages[after - 1]))
        row = after
    return found


@dataclass(frozen=True, kw_only=True)
class HopPages:
    """The segments of some ``hops``, pairs of a hop's link address and the linked address of the
    detour that it leads to: at most ``most`` segments. ``frames``: (link address of a hop, linked
    address of its FDE)."""

    hops: Sequence[tuple[int, int]]
    mover: Mover
    page: int
    most: int
    frames: Sequence[tuple[int, int]] = ()

    @cached_property
    def segments(self) -> list[tuple[int, int, int]]:
        """Link address and size in bytes of each segment, and the distance of its contents from the
        first page of the file, by address."""
        found = [(first, last + 1 - first) for first, last in self._spans()]
        held = bytearray()  # 1: occupied
        offsets = dict[int, int]()
        for first, count in sorted(found, key=lambda one: -one[1]):
            low, high = first * self.page, (first + count) * self.page
            own = [at - low for at, _ in self._sorted[self._row(low) : self._row(high)]]
            offset = 0
            while any(any(held[offset + at : offset + at + self.mover.jump_size]) for at in own):
                offset += self.page
            held.extend(bytes(max(offset + high - low - len(held), 0)))
            for at in own:
                size = self.mover.jump_size
                held[offset + at : offset + at + size] = b"\1" * size
            offsets[first] = offset
        return [(first * self.page, count * self.page, offsets[first]) for first, count in found]

    def contents(self, shift: int) -> bytes:
        """Build the pages of the file, for detours that are ``shift`` bytes above their linked
        addresses. Raises Immovable if one is out of reach."""
        size = max((offset + size for _, size, offset in self.segments), default=0)
        trap = self.mover.trap
        out = bytearray(trap * (size // len(trap)))
        for low, size, offset in self.segments:
            for at, detour in self._sorted[self._row(low) : self._row(low + size)]:
                code = self.mover.jump(at, detour + shift)
                out[offset + at - low : offset + at - low + len(code)] = code
        return bytes(out)

    def _spans(self) -> list[tuple[int, int]]:
        pages = sorted({at // self.page for at, _ in self.hops})
        low, high = 1, MAX_SPAN
        while low < high:
            middle = (low + high) // 2
            if len(spans(pages, middle)) <= self.most:
                high = middle
            else:
                low = middle + 1
        return spans(pages, low)

    @cached_property
    def _sorted(self) -> list[tuple[int, int]]:
        return sorted(self.hops)

    def _row(self, address: int) -> int:
        return bisect_left(self._sorted, (address,))
