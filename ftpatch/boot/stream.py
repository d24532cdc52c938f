# SPDX-License-Identifier: MIT
"""Decoding a stream's bytes into events.

An event is accepted if its marker is there, its place is one of the sites that call the tracer, and
its stack pointer is aligned: of other bytes one in some millions looks like that. If an event is
cut, or something else was written in between, the next one is searched for at every marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import supports
from ftpatch.arch.boot import (
    COPY,
    MARK,
    MEMORY,
    BootTracer,
    Events,
    Mark,
    Slots,
    boot_tracer_of,
    read_mark,
)
from ftpatch.boot.hooks import Hooked, read_hooks, require_journal
from ftpatch.core.changes import Kind
from ftpatch.core.columns import addresses, among
from ftpatch.core.journal import journalled
from ftpatch.elf.relocatable import LAID_CODE
from ftpatch.errors import InputError, UsageError
from ftpatch.ftrace.sites import Sites, read_sites
from ftpatch.image import Image

__all__ = ["Decoder", "Source", "find_source", "read_stream"]

STEP = 1 << 22
"""Bytes to examine at a time."""
MAX_COPIES = 1 << 20
"""Bytes to examine of what was laid into a module."""
TEXT, TEXT_FROM, TEXT_TO = b"\t\n\r\x1b", 0x20, 0x7F
"""Bytes from a console that shares the tracer's port."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The sender of a stream: the tracer, its mark, the mark's address, and the places that call
    it: ``places`` int64[n], ascending, as in events, ``ip`` uint64[n], their sites' addresses,
    ``last`` bool[n], whether they stop it, and ``hooks`` bool[n], whether they are in the code of
    probes, which ``hooked`` explains. A module's sections are loaded at other distances from each
    other: ``bounds`` uint64[m], ascending, are where they begin and end in the image."""

    tracer: BootTracer
    mark: Mark
    at: int
    places: NDArray[np.int64]
    ip: NDArray[np.uint64]
    last: NDArray[np.bool_]
    hooks: NDArray[np.bool_]
    hooked: Hooked | None = None
    bounds: NDArray[np.uint64] | None = None

    def calls(self, events: Events) -> Events:
        """Select those of sites, without those of probes."""
        if self.hooked is None:
            return events
        return events.take(~self.hooks[np.searchsorted(self.places, events.place)])

    def ip_of(self, events: Events) -> NDArray[np.uint64]:
        """The sites of events, uint64[n]."""
        return self.ip[np.searchsorted(self.places, events.place)]

    @property
    def sink(self) -> str:
        """The sink's name."""
        return MEMORY if self.mark.in_memory else self.tracer.sinks[self.mark.sink]

    @property
    def shares_console(self) -> bool:
        """True if the console has the events, too."""
        return self.sink in self.tracer.emulator.shared

    @property
    def size(self) -> int:
        """Bytes of an event."""
        if self.mark.in_memory:
            return Slots(self.mark.time).size
        return self.tracer.size(time=self.mark.time, back=self.mark.back)

    def read(self, rows: NDArray[np.uint8]) -> Events:
        """Decode events, uint8[n, size]."""
        if self.mark.in_memory:
            return Slots(self.mark.time).read(rows)
        events = self.tracer.read(rows, time=self.mark.time, back=self.mark.back)
        if self.bounds is None or events.back is None:
            return events
        section, into = (self._section(place - 1) for place in (events.place, events.back))
        return replace(events, back=np.where(section == into, events.back, ELSEWHERE))

    def _section(self, place: NDArray[np.int64]) -> NDArray[np.intp]:
        """Number the section that a place lies in, intp[n]."""
        assert self.bounds is not None
        return np.searchsorted(self.bounds.view(np.int64), place + self.at, side="right")


ELSEWHERE = -(1 << 31)
"""Place that a function returns to if that is outside of its own section: not in the image."""


def find_source(image: Image) -> Source:
    """Find the boot tracer of a patched kernel or module. Raises UsageError if it has none."""
    sites = read_sites(image)
    marks = _copies(sites) if image.is_relocatable else _mark(sites)
    if not marks:
        require_journal(image)
    if not marks or not supports(sites.arch.name, "boot"):
        raise UsageError(
            image.path,
            "no boot tracer in this image",
            "use the output of `ftpatch enable --tracer boot`",
        )
    tracer, (at, mark) = boot_tracer_of(sites.arch.name), marks[0]
    stops = addresses(*(start + one.last for start, one in marks if one.last))
    calls = np.isin(sites.addr, addresses(*(start + one.entry for start, one in marks)))
    calls |= np.isin(sites.addr, stops)
    hooked = read_hooks(image)
    if not calls.any() and hooked is None:
        raise UsageError(image.path, "no site calls its boot tracer")
    ip, addr = sites.ip[calls], sites.addr[calls]
    behind = tracer.behind - sites.lead
    places = (ip + np.uint64(behind) - np.uint64(at)).astype(np.int64)
    last = np.isin(addr, stops)
    hooks = np.zeros(len(ip), bool)
    if hooked is not None:
        probed = np.array([probe["site"] for probe in hooked.probes] or [0], np.uint64)
        ip = np.concatenate([ip, probed[hooked.probe]])
        places = np.concatenate([places, hooked.place])
        more = len(hooked.place)
        last = np.concatenate([last, np.zeros(more, bool)])
        hooks = np.concatenate([hooks, np.ones(more, bool)])
    order = np.argsort(places, kind="stable")
    bounds = None
    if image.is_relocatable:
        bounds = np.sort(np.concatenate([image.elf.text[:, 0], image.elf.text.sum(axis=1)]))
    return Source(
        tracer=tracer,
        mark=mark,
        at=at,
        places=places[order],
        ip=ip[order],
        last=last[order],
        hooks=hooks[order],
        hooked=hooked,
        bounds=bounds,
    )


def _copies(sites: Sites) -> list[tuple[int, Mark]]:
    """Addresses of the copies that were laid into a module, and their marks."""
    elf = sites.image.elf
    section = elf.section(LAID_CODE)
    if section is None:
        return []
    size = min(section.size, MAX_COPIES)
    held = elf.contents(section.offset, size, section.name).tobytes()
    marks = ((at, read_mark(held[at : at + MARK.size])) for at in range(0, len(held), COPY))
    return [(section.address + at, mark) for at, mark in marks if mark is not None]


def _mark(sites: Sites) -> list[tuple[int, Mark]]:
    """Address of the tracer in a kernel's text, and its mark."""
    laid = journalled(sites.blocks, Kind.PADDING)
    for row in range(len(laid)):
        mark = read_mark(laid.new[row, : max(int(laid.width[row]), MARK.size)].tobytes())
        if mark is not None:
            return [(int(sites.image.elf.address_of(laid.offset[row : row + 1])[0]), mark)]
    return []


class Decoder:
    """An incremental decoder. ``events`` counts those accepted, ``skipped`` bytes that belong to no
    event, ``foreign`` those of them that are not text either, ``gaps`` their runs; ``broke`` is the
    offset of the first one."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.size
        self._rest = np.empty(0, np.uint8)
        self._in_gap = False
        self.events = self.skipped = self.foreign = self.gaps = self.broke = self._passed = 0

    def feed(self, raw: NDArray[np.uint8]) -> Iterator[Events]:
        """Decode ``raw``, uint8[n], after what was left before."""
        data = np.concatenate([self._rest, raw])
        last = len(data) - self._size  # the last place a complete event can begin
        if last < 0:
            self._rest = data
            return
        at = self._found(data, last)
        end = max(int(at[-1]) + self._size if len(at) else 0, last + 1)
        self._count_gaps(data[:end], at)
        self._rest = data[end:]
        self._passed += end
        if len(at):
            rows = data[at[:, None] + np.arange(self._size)]
            self.events += len(at)
            yield self._events(rows)

    def finish(self) -> None:
        """Count what is left as outside of any event."""
        if len(self._rest):
            self._count_gaps(self._rest, np.empty(0, np.int64))
        self._rest = self._rest[:0]

    @property
    def is_foreign(self) -> bool:
        """True if most of it is neither an event nor text."""
        return self.foreign > self.events * self._size

    @property
    def notes(self) -> list[str]:
        """Notes on what is missing, one clause each."""
        if not self.skipped:
            return []
        places = f"in {self.gaps} places, the first" if self.gaps > 1 else "in one place,"
        return [f"{self.skipped} bytes outside of any event, {places} at offset {self.broke}"]

    def _found(self, data: NDArray[np.uint8], last: int) -> NDArray[np.int64]:
        """Find where events begin, int64[m]: what looks like one, unless the one before overlaps
        it."""
        size = self._size
        rows = data[: (last // size + 1) * size].reshape(-1, size)
        if self._good(rows).all():
            return np.arange(len(rows), dtype=np.int64) * size
        if self._source.mark.in_memory:  # without markers, but nothing comes in between
            return np.flatnonzero(self._good(rows)) * size
        at = np.flatnonzero(data[: last + 1] == self._source.tracer.marker)
        at = at[self._good(data[at[:, None] + np.arange(size)])]
        while len(at):  # of each row of overlapping ones, keep the first
            over = np.concatenate([[False], np.diff(at) < size])
            wrong = over & ~np.concatenate([[False], over[:-1]])
            if not wrong.any():
                break
            at = at[~wrong]
        return at

    def _count_gaps(self, data: NDArray[np.uint8], at: NDArray[np.int64]) -> None:
        """Count the bytes between events."""
        begins = np.concatenate([[0], at + self._size])
        ends = np.concatenate([at, [len(data)]])
        holes = np.flatnonzero(ends > begins)
        if len(holes):
            if not self.gaps:
                self.broke = self._passed + int(begins[holes[0]])
            within = np.ones(len(data), bool)
            within[(at[:, None] + np.arange(self._size)).ravel()] = False
            strange = data[within]
            text = (strange >= TEXT_FROM) & (strange < TEXT_TO) | among(strange, TEXT)
            self.skipped += len(strange)
            self.foreign += int((~text).sum())
            self.gaps += len(holes) - bool(self._in_gap and begins[holes[0]] == 0)
        self._in_gap = bool(len(holes)) and int(ends[holes[-1]]) == len(data)

    def _events(self, rows: NDArray[np.uint8]) -> Events:
        mark = self._source.mark
        events = self._source.read(rows)
        if mark.time:
            return events
        first = self.events - len(rows)
        return replace(events, time=events.time + np.uint64(first))

    def _good(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        source = self._source
        events = source.read(rows)
        at = np.minimum(np.searchsorted(source.places, events.place), len(source.places) - 1)
        good = source.places[at] == events.place
        good &= events.sp % source.tracer.align == 0
        return np.asarray(good if source.mark.in_memory else good & self._marked(rows))

    def _marked(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        return np.asarray(rows[:, 0] == self._source.tracer.marker)


def read_stream(path: Path, decoder: Decoder) -> Iterator[Events]:
    """Decode a whole file. Raises InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            while raw := file.read(STEP):
                yield from decoder.feed(np.frombuffer(raw, np.uint8))
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    decoder.finish()
