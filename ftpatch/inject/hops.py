# SPDX-License-Identifier: MIT
"""Hops: jumps to detours, at the addresses to which punned jumps lead.

    place   punned jump ---> hop   jump ---> detour of the injected stub

These addresses are scattered over 2 GB, but not evenly: functions that begin alike have hops as far
from each other as they are themselves. So a segment spans several pages where there are more of
them than program headers. All are mapped from the same few pages of the file, which hold the hops
of many segments at different offsets:

    memory   | program | stub |   | .h....... ...h... |    | ......h.. |    | .h....... |
    file     | program | stub | .h....h.. ...h... | .h....... |

All pages are above the stub, so the program's heap, which Linux puts behind the last segment, is
above them. (set_brk() of fs/binfmt_elf.c; in a static PIE the heap is elsewhere.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from ftpatch.arch.move import Mover
from ftpatch.arch.puns import Pun, Puns
from ftpatch.elf.elf_file import MAX_MAPPED
from ftpatch.inject.hop_pages import MAX_SPAN, spans

__all__ = ["Hop", "Hops"]

CEILING = 1 << 46
"""Upper limit of link addresses: half of what a program on x86-64 has."""
MAX_PAGES_TRIED = 64
"""Per form of a jump."""
STRIDE = 1543
"""Distance of places that are tried one after the other; a prime, so that all bytes of a jump
differ (bytes)."""


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A hop at link address ``at``; ``code`` is to be written at the place, for a jump whose
    ``size`` may be greater (bytes)."""

    at: int
    code: bytes
    size: int


class Hops:
    """Places for hops above link address ``floor``, in at most ``most`` segments of pages of
    ``page`` bytes."""

    def __init__(self, puns: Puns, mover: Mover, *, floor: int, page: int, most: int) -> None:
        self.puns = puns
        self.most = most
        self._size, self._page = mover.jump_size, page
        self._floor = (floor + page - 1) // page
        self._pages = list[int]()  # page numbers, sorted
        self._held = dict[int, bytearray]()  # 1: occupied
        self._span = 1  # pages of a segment
        self._starts = list[int]()  # of segments

    def reachable(self, forms: Sequence[Pun]) -> bool:
        """Return whether one of these jumps may lead to a hop."""
        return any(min(one.high, CEILING) > max(one.low, self._floor * self._page) for one in forms)

    def take(self, forms: Sequence[Pun], size: int) -> Hop | None:
        """Take a place for the hop of one of these jumps, which replaces an instruction of ``size``
        bytes; None if there is none. Pages that are there already are preferred."""
        for new in (False, True):
            for pun in forms:
                at = next(self.places(pun, new=new), None)
                if at is not None and self.occupy([at]):
                    return self.hop(pun, at, size)
        return None

    def hop(self, pun: Pun, at: int, size: int) -> Hop:
        """The hop at ``at`` of a jump that replaces an instruction of ``size`` bytes."""
        return Hop(at=at, code=self.puns.encode(pun, at, size), size=pun.size)

    def places(self, pun: Pun, *, new: bool) -> Iterator[int]:
        """Find free places for the hop of a jump, many on each page: in segments that are there
        already, or, if ``new``, elsewhere too."""
        low = max(pun.low // self._page, self._floor)
        high = (min(pun.high, CEILING) - 1) // self._page + 1
        used = self._pages[bisect_left(self._pages, low) : bisect_left(self._pages, high)]
        pages = chain(used, self._between(low, high))
        if new:
            pages = chain(pages, self._beyond(low, high))
        free = bytes(self._size)
        for number in pages:
            held, start = self._held.get(number), number * self._page
            first = max(pun.low - start, 0)
            count = min(pun.high - start, self._page - self._size + 1) - first
            if held is not None and held.find(free, first, first + count + self._size - 1) < 0:
                continue  # full, as those of functions that begin alike soon are
            for step in range(max(count, 0)):
                at = first + step * STRIDE % count
                if held is None or not any(held[at : at + self._size]):
                    yield start + at

    def occupy(self, places: Sequence[int]) -> bool:
        """Occupy places for hops; False if that takes too many segments, or they overlap."""
        ordered = sorted(places)
        if any(b - a < self._size for a, b in pairwise(ordered)):
            return False
        pages, span = list(self._pages), self._span
        for number in {at // self._page for at in places} - self._held.keys():
            insort(pages, number)
        while len(found := spans(pages, span)) > self.most:
            span *= 2
            if span > MAX_SPAN or self.most * span * self._page > MAX_MAPPED:
                return False
        self._pages, self._span, self._starts = pages, span, [start for start, _ in found]
        for at in places:
            number, offset = divmod(at, self._page)
            held = self._held.setdefault(number, bytearray(self._page))
            held[offset : offset + self._size] = b"\1" * self._size
        return True

    def _between(self, low: int, high: int) -> Iterator[int]:
        """Unused pages of [low, high) that are within a segment, or would be."""
        tried = 0
        row = max(bisect_left(self._starts, low) - 1, 0)
        for start in self._starts[row:]:
            if start >= high:
                break
            for number in range(max(start, low), min(start + self._span, high)):
                if number not in self._held and tried < MAX_PAGES_TRIED:
                    tried += 1
                    yield number

    def _beyond(self, low: int, high: int) -> Iterator[int]:
        """Other unused pages of [low, high), first the next ones to those that are used."""
        row = bisect_left(self._pages, low)
        nearest = {low, high - 1} if low < high else set[int]()
        near = [*self._pages[max(row - 1, 0) : row + 1]]
        for number in sorted(nearest, key=lambda one: min((abs(one - p) for p in near), default=0)):
            if number not in self._held:
                yield number
        for number in range(low + 1, min(high - 1, low + MAX_PAGES_TRIED)):
            if number not in self._held:
                yield number
