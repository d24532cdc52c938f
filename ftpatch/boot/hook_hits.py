# SPDX-License-Identifier: MIT
"""From a stream's events to hits of probes.

All events of a hit have one stack pointer, and nothing else on that stack comes in between: what
interrupts it is deeper. So events sorted by stack pointer, and by time within one, are whole hits
one behind the other. An r probe's call begins with an event of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events
from ftpatch.arch.kernel_probe import TEXT, Part
from ftpatch.boot.hooks import Hooked
from ftpatch.boot.stream import Source
from ftpatch.trace.hits import Column, Field, Group, HistTable, Point, Show

__all__ = ["BootHits", "HookPoint"]

Index = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class HookPoint:
    """A probe of a kernel on disk: a Point of reports."""

    name: str
    ip: int
    symbol: str | None
    returns: bool
    missed: int
    fields: tuple[Field, ...]
    definition: str
    offset: int
    way: str
    library: str = ""


class BootHits:
    """The Hits of reports. ``threads``: the number of each event's stack, int32[n]; ``torn``: hits
    of which something is missing."""

    def __init__(self, events: Events, source: Source, threads: NDArray[np.int32]) -> None:
        assert source.hooked is not None
        self._source, hooked = source, source.hooked
        row = np.searchsorted(hooked.place, events.place)
        mine = np.minimum(row, len(hooked.place) - 1)
        inside = np.flatnonzero(hooked.place[mine] == events.place)
        order = inside[np.argsort(events.sp[inside], kind="stable")]
        row = row[order]
        self._probe, self._value, self._part = (
            column[row] for column in (hooked.probe, hooked.value, hooked.part)
        )
        back = events.back if events.back is not None else np.zeros(len(events.place), np.int64)
        self._word = back[order].astype(np.uint32)
        begin = _begins(events.sp[order], self._probe, self._part, order)
        start = np.flatnonzero(self._part == Part.HIT)
        # Which hit each event belongs to: the last one that began on its stack; -1 for none.
        hit = np.searchsorted(start, np.arange(len(order)), side="right") - 1
        of = start[np.maximum(hit, 0)] if len(start) else np.zeros(len(order), np.int64)
        same = (hit >= 0) & (self._part != Part.ENTERED) & (self._part != Part.MISSED)
        if len(start):
            same &= (self._probe[of] == self._probe) & (events.sp[order][of] == events.sp[order])
        hit[~same] = -1
        whole = _whole(hooked, self._probe[start], hit, self._part)
        self.torn = int((~whole).sum())
        number = np.full(len(start) + 1, -1, np.int64)
        by_time = np.flatnonzero(whole)
        by_time = by_time[np.argsort(order[start[by_time]], kind="stable")]
        number[by_time] = np.arange(len(by_time))
        self._hit = number[hit]
        first = start[by_time]
        self.point = self._probe[first].astype(np.int32)
        self.thread = threads[order[first]].astype(np.int32)
        clock = events.time.astype(np.int64)
        clock = clock - (clock[0] if len(clock) else 0)
        self.time = clock[order[first]]
        began = begin[first]
        self.begin = np.where(began >= 0, clock[began], self.time)
        callers = _callers(hooked, back[order[start]], events.sp[order][start], self._probe[start])
        self._back = callers[by_time]
        self._rows = np.arange(len(first))
        missed = np.bincount(self._probe[self._part == Part.MISSED], minlength=len(hooked.probes))
        self.points: list[Point] = [
            _point(probe, int(lost)) for probe, lost in zip(hooked.probes, missed, strict=True)
        ]
        self.told: list[list[Point]] = [self.points]
        self.header = [0] * len(self.points)
        self.hists: list[HistTable] = []  # a kernel's probes have none
        self.numbers: list[NDArray[np.int32]] = [np.arange(len(self.points), dtype=np.int32)]

    def __len__(self) -> int:
        return len(self.time)

    def parts(self) -> Iterator[BootHits]:
        """All of them."""
        yield self

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep only the hits of a mask, bool[n]."""
        for name in ("thread", "point", "time", "begin", "_back", "_rows"):
            setattr(self, name, getattr(self, name)[mask])

    def group(self, number: int, rows: NDArray[np.intp]) -> Group:
        """Read some hits of one probe, with their values."""
        point = self.points[number]
        assert self._source.hooked is not None
        told = self._source.hooked.probes[number]["fields"]
        at = np.full(len(self._hit) + 1, -1, np.int64)
        at[self._rows[rows]] = np.arange(len(rows))
        mine = np.flatnonzero((self._probe == number) & (self._hit >= 0))
        mine = mine[at[self._hit[mine]] >= 0]
        where = at[self._hit[mine]]
        values = tuple(
            self._column(field, held, mine[kept], where[kept], len(rows))
            for index, (field, held) in enumerate(zip(point.fields, told, strict=True))
            for kept in [self._value[mine] == index]
        )
        caller = self._back[rows].astype(np.uint64) + np.uint64(self._source.at)
        return Group(
            point=point,
            header=0,
            thread=self.thread[rows],
            owner=np.zeros(len(rows), np.int32),
            time=self.time[rows],
            duration=self.time[rows] - self.begin[rows],
            caller=caller if point.returns else np.empty(0, np.uint64),
            values=values,
        )

    def _column(
        self, field: Field, held: Sequence[object], mine: Index, where: Index, count: int
    ) -> Column:
        """One value of ``count`` hits, from its events ``mine`` of the hits ``where``."""
        part, word = self._part[mine], self._word[mine]
        number, lost = np.zeros(count, np.uint64), np.zeros(count, bool)
        cut, none = np.zeros(count, bool), np.empty((count, 0), np.uint8)
        status = part == Part.STATUS
        lost[where[status]] = word[status].view(np.int32) < 0
        if field.show is Show.STRING:
            text = _texts(where[part == Part.TEXT], word[part == Part.TEXT], count)
            there = np.logical_and.accumulate(text != 0, axis=1) & ~lost[:, None]
            cut = there[:, TEXT - 2].copy()
            return Column(field=field, number=number, text=text * there, lost=lost, cut=cut)
        _, _, _, width, known, linked = held
        if known is not None:
            number[:] = np.uint64(int(str(known)) % (1 << 64))
        low, high = part == Part.LOW, part == Part.HIGH
        number[where[low]] |= word[low].astype(np.uint64)
        number[where[high]] |= word[high].astype(np.uint64) << np.uint64(32)
        if linked:
            number += np.uint64(self._source.at)
        shift = np.uint64(64 - 8 * int(str(width)))
        moved = number << shift
        if field.show is Show.SIGNED:
            signed = moved.view(np.int64) >> shift.view(np.int64)
            return Column(field=field, number=signed, text=none, lost=lost, cut=cut)
        return Column(field=field, number=moved >> shift, text=none, lost=lost, cut=cut)


def _texts(where: Index, word: NDArray[np.uint32], count: int) -> NDArray[np.uint8]:
    """Put together strings, uint8[count, TEXT], from four bytes at a time, in order."""
    text = np.zeros((count, TEXT // 4), np.uint32)
    if len(where):
        new = np.diff(where, prepend=-1) != 0
        begun = np.flatnonzero(new)
        index = np.arange(len(where)) - begun[np.cumsum(new) - 1]
        kept = index < text.shape[1]
        text[where[kept], index[kept]] = word[kept]
    return text.astype("<u4").view(np.uint8)


def _begins(sp: NDArray[np.uint64], probe: Index, part: Index, order: Index) -> Index:
    """For each hit of an r probe, the event with which its call began, int64[n]; -1 if unknown, and
    for all others. Calls of one probe with one stack pointer are nested: a function that calls
    itself last, or one whose task has died."""
    begin = np.full(len(sp), -1, np.int64)
    entered, hit = part == Part.ENTERED, part == Part.HIT
    both = np.flatnonzero(entered | hit)
    both = both[np.lexsort((both, probe[both], sp[both]))]
    if not len(both):
        return begin
    step = np.where(entered[both], 1, -1)
    depth = np.cumsum(step)
    level = np.where(step > 0, depth, depth + 1)
    key = np.lexsort((np.arange(len(both)), level, probe[both], sp[both]))
    here, after = key[:-1], key[1:]
    pair = (level[here] == level[after]) & (step[here] > 0) & (step[after] < 0)
    first, second = both[here], both[after]
    pair &= (probe[first] == probe[second]) & (sp[first] == sp[second])
    begin[second[pair]] = order[first[pair]]
    return begin


def _callers(
    hooked: Hooked, back: Index, sp: NDArray[np.uint64], probe: Index
) -> NDArray[np.int64]:
    """Where the functions of hits return, bytes from the mark, int64[h], sorted as all are. Of
    several r probes on one function the last to see it return has the caller; each other one
    returns to the next."""
    if not len(back):
        return back
    site = np.array([one["site"] for one in hooked.probes], np.uint64)[probe]
    next_one = (sp[1:] == sp[:-1]) & (site[1:] == site[:-1]) & (probe[1:] != probe[:-1])
    last = ~((back >= 0) & (back <= hooked.place.max(initial=0)) & np.append(next_one, False))
    row = np.where(last, np.arange(len(back)), len(back))
    found: NDArray[np.int64] = back[np.minimum.accumulate(row[::-1])[::-1]]
    return found


def _whole(hooked: Hooked, probe: Index, hit: Index, part: Index) -> NDArray[np.bool_]:
    """Whether all parts of each hit came, bool[h]; ``probe`` int64[h]: their probes."""
    numbers = [Part.LOW, Part.HIGH, Part.STATUS]
    wanted = np.bincount(hooked.probe[np.isin(hooked.part, numbers)], minlength=len(hooked.probes))
    came = np.bincount(hit[(hit >= 0) & np.isin(part, numbers)], minlength=len(probe))
    return np.asarray(came == wanted[probe])


def _point(probe: Mapping[str, Any], missed: int) -> HookPoint:
    shows = {show.value: show for show in Show}
    return HookPoint(
        name=probe["name"],
        ip=probe["ip"],
        symbol=probe["symbol"],
        returns=probe["returns"],
        missed=missed,
        fields=tuple(Field(one[0], shows[one[1]], one[2]) for one in probe["fields"]),
        definition=probe["text"],
        offset=probe["offset"],
        way=probe["way"],
    )
