# SPDX-License-Identifier: MIT
"""Evictions: an instruction behind a punned jump becomes a punned jump too, so that its bytes,
which the first one shares, may be chosen.

    before   55          53          48 83 ec 08                push; push; sub
    after    e9          53          e9 aa bb cc (dd ...)       jmp .+bbaae953; push; jmp .+ddccbbaa

The push between them stays what it is. Each instruction goes on beginning where it did: what an
evicted one did is done elsewhere, and who jumps to it finds the jump there. So nothing needs to be
known of branches. But it must be an instruction: control comes there from the probed one, straight
on, without a call, which might not return.

After Duck, Gao and Roychoudhury (``arch/puns.py``), section 3, tactic T2, and their strategy S1:
what is behind is written first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ftpatch.arch.move import Immovable, Mover
from ftpatch.arch.puns import Pun
from ftpatch.inject.hops import Hop, Hops

__all__ = ["Evictions", "Jump"]

MAX_EVICTED = 2
"""Instructions for one probe."""
MAX_TRIED = 2048
"""Places for the hop of one form of an evicted instruction's jump."""
MAX_SHARED = 64
"""The same, for one that another one was evicted for."""


@dataclass(frozen=True, kw_only=True)
class Jump:
    """A jump in place of the instruction at link address ``at``, and where it leads."""

    at: int
    hop: Hop


class Evictions:
    """Of instructions whose bytes the jump at link address ``at`` shares. ``code``: that from there
    on; nothing at ``room`` or beyond is changed, nothing at ``until`` or beyond is shared."""

    def __init__(
        self, hops: Hops, mover: Mover, code: bytes, *, at: int, room: int, until: int | None
    ) -> None:
        self._hops, self._code, self._at = hops, code, at
        self._until = at + len(code) if until is None else until
        self._bounds = list(_straight(mover, code[: max(room - at, 0)], at))
        self._new = False

    def find(self) -> list[Jump] | None:
        """Occupy places for hops: those of the jump and then those of the evicted instructions'
        jumps; None if there are none."""
        if len(self._bounds) < 2:
            return None
        for self._new in (False, True):
            for jumps, _ in self._by_eviction(0, MAX_EVICTED):
                if self._hops.occupy([one.hop.at for one in jumps]):
                    return jumps
        return None

    def _by_eviction(self, number: int, most: int) -> Iterator[tuple[list[Jump], bytes]]:
        """Jumps in place of an instruction and of up to ``most`` behind it, and the code then."""
        start, end = self._bounds[number]
        seen = set[bytes]()
        for victim, (begin, _) in reversed([*enumerate(self._bounds)][number + 1 :]):
            if begin >= end + 4:
                continue
            for further, code in self._evicted(victim, most - 1):
                shared = code[start : end + 4]
                if shared in seen:
                    continue
                seen.add(shared)
                for pun in self._forms(code, number):
                    places = self._hops.places(pun, new=self._new)
                    for place in islice(places, MAX_SHARED if number else 1):
                        yield self._with(number, pun, place, further, code)

    def _evicted(self, number: int, most: int) -> Iterator[tuple[list[Jump], bytes]]:
        for pun in self._forms(self._code, number):
            for place in islice(self._hops.places(pun, new=self._new), MAX_TRIED):
                yield self._with(number, pun, place, [], self._code)
        if most:
            yield from islice(self._by_eviction(number, most), MAX_TRIED)

    def _forms(self, code: bytes, number: int) -> Sequence[Pun]:
        start, end = self._bounds[number]
        at = self._at + start
        found = self._hops.puns.forms(code[start:], at, end - start)
        return [one for one in found if at + one.size <= self._until]

    def _with(
        self, number: int, pun: Pun, place: int, further: list[Jump], code: bytes
    ) -> tuple[list[Jump], bytes]:
        start, end = self._bounds[number]
        hop = self._hops.hop(pun, place, end - start)
        new = code[:start] + hop.code + code[start + len(hop.code) :]
        return [Jump(at=self._at + start, hop=hop), *further], new


def _straight(mover: Mover, code: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Start and end of the first instructions of ``code``, as far as control goes straight on."""
    start = 0
    try:
        while start < len(code) and start < 20 and not (start and mover.landing(code[start:])):
            end = mover.move(code, at, at, start + 1).size
            yield start, end
            start = end
    except Immovable:
        return
