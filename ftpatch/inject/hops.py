# SPDX-License-Identifier: MIT
"""Hops: jumps to detours, at the addresses to which punned jumps lead.

    place   punned jump ---> hop   jump ---> detour of the injected stub

These addresses are scattered over 2 GB. Each page with a hop is a segment of its own, but a page of
the file holds the hops of many of them, at different offsets; all are mapped from it:

    memory   | program | stub |   | .h....... |    | ......h.. |    | .h....... |
    file     | program | stub | .h....h.. | .h....... |

All pages are above the stub, so the program's heap, which Linux puts behind the last segment, is
above them. (set_brk() of fs/binfmt_elf.c; in a static PIE the heap is elsewhere.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ftpatch.arch.move import Mover
from ftpatch.arch.puns import Pun, Puns

__all__ = ["Hop", "HopPages", "Hops"]

CEILING = 1 << 46
"""Upper limit of link addresses: half of what a program on x86-64 has."""
MAX_PAGES_TRIED = 64
"""Per form of a jump."""


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A hop at link address ``at``; ``code`` is to be written at the place, for a jump whose
    ``size`` may be greater (bytes). ``sheet``: the page of the file that holds it, by number."""

    at: int
    code: bytes
    size: int
    sheet: int


class Hops:
    """Places for hops above link address ``floor``, on at most ``most`` pages of ``page`` bytes."""

    def __init__(self, puns: Puns, mover: Mover, *, floor: int, page: int, most: int) -> None:
        self.puns = puns
        self._size, self._page, self._most = mover.jump_size, page, most
        self._floor = (floor + page - 1) // page
        self._pages = list[int]()  # page numbers, sorted
        self._sheet_of = dict[int, int]()
        self._sheets = list[bytearray]()  # 1: occupied

    def reachable(self, forms: Sequence[Pun]) -> bool:
        """Return whether one of these jumps may lead to a hop."""
        return any(min(one.high, CEILING) > max(one.low, self._floor * self._page) for one in forms)

    def take(self, forms: Sequence[Pun], size: int) -> Hop | None:
        """Take a place for the hop of one of these jumps, which replaces an instruction of ``size``
        bytes; None if there is none. Pages that are there already are preferred."""
        for pun in forms:
            for number in self._used(pun):
                hop = self._on(pun, number, self._sheet_of[number], size)
                if hop:
                    return hop
        if len(self._pages) == self._most:
            return None
        for pun in forms:
            for number in self._unused(pun):
                for sheet in range(len(self._sheets) + 1):
                    hop = self._on(pun, number, sheet, size)
                    if hop:
                        insort(self._pages, number)
                        self._sheet_of[number] = sheet
                        return hop
        return None

    def _span(self, pun: Pun) -> tuple[int, int]:
        """The pages that a jump may lead to."""
        low, high = pun.low // self._page, (min(pun.high, CEILING) - 1) // self._page
        return max(low, self._floor), high + 1

    def _used(self, pun: Pun) -> Iterator[int]:
        low, high = self._span(pun)
        yield from self._pages[bisect_left(self._pages, low) : bisect_left(self._pages, high)]

    def _unused(self, pun: Pun) -> Iterator[int]:
        low, high = self._span(pun)
        for number in range(low, min(high, low + MAX_PAGES_TRIED)):
            if number not in self._sheet_of:
                yield number

    def _on(self, pun: Pun, number: int, sheet: int, size: int) -> Hop | None:
        """Take a place on one page."""
        if sheet == len(self._sheets):
            self._sheets.append(bytearray(self._page))
        held, start = self._sheets[sheet], number * self._page
        low = max(pun.low - start, 0)
        high = min(pun.high - 1 - start, self._page - self._size)
        at = held.find(bytes(self._size), low, max(high + self._size, low))
        if at < 0:
            return None
        held[at : at + self._size] = b"\1" * self._size
        code = self.puns.encode(pun, start + at, size)
        return Hop(at=start + at, code=code, size=pun.size, sheet=sheet)


class HopPages:
    """The pages of some ``hops``, each with the linked address of the detour that it leads to.
    ``frames``: (link address of a hop, linked address of its FDE)."""

    def __init__(
        self,
        hops: Sequence[tuple[Hop, int]],
        mover: Mover,
        page: int,
        frames: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.frames = frames
        self._hops, self._mover, self._page = hops, mover, page

    @cached_property
    def segments(self) -> list[tuple[int, int]]:
        """Link address and sheet of each page, by address."""
        return sorted({(hop.at // self._page * self._page, hop.sheet) for hop, _ in self._hops})

    def sheets(self, shift: int) -> bytes:
        """Build the pages of the file, for detours that are ``shift`` bytes above their linked
        addresses. Raises Immovable if one is out of reach."""
        count = max((hop.sheet for hop, _ in self._hops), default=-1) + 1
        trap = self._mover.trap
        out = bytearray(trap * (count * self._page // len(trap)))
        for hop, detour in self._hops:
            at = hop.sheet * self._page + hop.at % self._page
            code = self._mover.jump(hop.at, detour + shift)
            out[at : at + len(code)] = code
        return bytes(out)
