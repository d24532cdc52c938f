"""Bytes of a stream to events.

An event is believed where its marker stands, its place is one of the sites that call the tracer,
and its stack pointer is aligned: of other bytes one in some millions looks like that. Where an
event is cut, or something else was written between, the next one is looked for byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import MARK, BootTracer, Events, Mark, read_mark
from ftpatch.arch.boots import boot_tracer_of
from ftpatch.changes import Kind
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.journal import journalled
from ftpatch.sites import Sites, read_sites

__all__ = ["Decoder", "Source", "find_source", "read_stream"]

STEP = 1 << 22
"""Bytes that are looked at together."""


@dataclass(frozen=True)
class Source:
    """Who sent a stream: the tracer, its mark, the address of that, and the sites that call it:
    ``places`` int64[n], ascending, as in events, and ``ip`` uint64[n], their addresses."""

    tracer: BootTracer
    mark: Mark
    at: int
    places: NDArray[np.int64]
    ip: NDArray[np.uint64]


def find_source(image: Image) -> Source:
    """The boot tracer of a patched kernel. Raises UsageError where it has none."""
    sites = read_sites(image)
    tracer = boot_tracer_of(sites.arch.name)
    found = _mark(sites)
    if tracer is None or found is None:
        raise UsageError(
            image.path, "it has no boot tracer", "give what `ftpatch enable --tracer boot` wrote"
        )
    at, mark = found
    ip = np.sort(journalled(sites.blocks, Kind.CODE).owner)
    places = (ip + np.uint64(tracer.behind) - np.uint64(at)).astype(np.int64)
    order = np.argsort(places, kind="stable")
    return Source(tracer, mark, at, places[order], ip[order])


def _mark(sites: Sites) -> tuple[int, Mark] | None:
    laid = journalled(sites.blocks, Kind.PADDING)
    for row in range(len(laid)):
        mark = read_mark(laid.new[row, : max(int(laid.width[row]), MARK.size)].tobytes())
        if mark is not None:
            return int(sites.image.elf.address_of(laid.offset[row : row + 1])[0]), mark
    return None


class Decoder:
    """Takes bytes as they come. ``skipped`` counts bytes that belong to no event, ``events`` those
    that do."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.tracer.size(time=source.mark.time)
        self._rest = np.empty(0, np.uint8)
        self.skipped = self.events = 0

    def feed(self, raw: NDArray[np.uint8]) -> Iterator[Events]:
        """Events of ``raw``, uint8[n], and of what was left before."""
        data = np.concatenate([self._rest, raw])
        at, size = 0, self._size
        while len(data) - at >= size:
            count = (len(data) - at) // size
            rows = data[at : at + count * size].reshape(count, size)
            good = self._good(rows)
            run = count if good.all() else int(good.argmin())
            if run:
                at += run * size
                self.events += run
                yield self._events(rows[:run])
                continue
            step = self._next(data[at:])
            self.skipped += step
            at += step
        self._rest = data[at:]

    def finish(self) -> None:
        """What is left now belongs to no event."""
        self.skipped += len(self._rest)
        self._rest = self._rest[:0]

    def _events(self, rows: NDArray[np.uint8]) -> Events:
        events = self._source.tracer.read(rows, time=self._source.mark.time)
        if self._source.mark.time:
            return events
        first = self.events - len(rows)
        return Events(events.place, events.sp, events.time + np.uint64(first))

    def _good(self, rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
        source = self._source
        events = source.tracer.read(rows, time=source.mark.time)
        at = np.minimum(np.searchsorted(source.places, events.place), len(source.places) - 1)
        good = source.places[at] == events.place
        good &= (rows[:, 0] == source.tracer.marker) & (events.sp % source.tracer.align == 0)
        return np.asarray(good)

    def _next(self, data: NDArray[np.uint8]) -> int:
        """How many bytes to the next event, or to where one may begin that is not whole yet."""
        last = len(data) - self._size + 1
        marks = np.flatnonzero(data[1:last] == self._source.tracer.marker) + 1
        for part in np.array_split(marks, max(1, len(marks) // 4096)):
            rows = data[part[:, None] + np.arange(self._size)]
            good = self._good(rows) if len(part) else np.zeros(0, bool)
            if good.any():
                return int(part[good.argmax()])
        return last


def read_stream(path: Path, decoder: Decoder) -> Iterator[Events]:
    """The events of a whole file. Raises InputError where it cannot be read."""
    try:
        with path.open("rb") as file:
            while raw := file.read(STEP):
                yield from decoder.feed(np.frombuffer(raw, np.uint8))
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    decoder.finish()
