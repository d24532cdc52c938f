# SPDX-License-Identifier: MIT
"""Streams of kernels with probes, for reports; and the choice between hits and calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Events
from ftpatch.boot.calls import stacks_of
from ftpatch.boot.events import HITS, BootTrace, Stream, recording_of, require_no_other
from ftpatch.boot.hook_hits import BootHits
from ftpatch.boot.stream import Decoder, find_source, read_stream
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.trace.address_names import Places
from ftpatch.trace.hit_calls import calls, name_functions, narrow_hits
from ftpatch.trace.rows import Rows
from ftpatch.trace.source import Recording
from ftpatch.trace.window import Window

__all__ = ["HookTrace", "open_stream"]

NONE = "no events of this kernel"
HINT = "--image must name the kernel that wrote the stream"


class HookTrace:
    """One stream and the kernel with probes that sent it: a source of hits. Threads are stacks."""

    kind = HITS
    has_stacks = False
    steps = 0

    def __init__(self, stream: Stream, window: Window) -> None:
        source = stream.source
        whole = Events.concat(stream.events)
        stacks, threads = stacks_of(whole.sp, source.tracer.stack)
        self._all, self._decoder = BootHits(whole, source, threads), stream.decoder
        self._hits: BootHits | None = None
        self._functions: NDArray[np.int32] | None = None
        self.has_returns = any(point.returns for point in self._all.points)
        self.recording: Recording = recording_of(stream, window, len(stacks))

    def _function(self) -> NDArray[np.int32]:
        """The function of each point: numbered once."""
        if self._functions is None:
            self._functions = name_functions(self._all, self.recording)
        return self._functions

    def hits(self) -> BootHits:
        """Hits that the window shows."""
        if self._hits is None:
            hits, window = self._all, self.recording.window
            low, high = window.span
            kept = (hits.time >= low) & (hits.time <= high)
            if window.tids:
                kept &= np.isin(hits.thread + 1, list(window.tids))
            if window.globs:
                kept &= self._named()[hits.point]
            hits.keep(kept)
            if window.filters:
                narrow_hits(hits, self.recording, self._function())
            self._hits = hits
        return self._hits

    def _named(self) -> NDArray[np.bool_]:
        """The points that the window's globs name, bool[p]."""
        places, window = Places(self.recording, str), self.recording.window
        points = self._all.points
        names = [[point.name, places.function(0, point)[0]] for point in points]
        return np.array([window.names_match(*dict.fromkeys(both)) for both in names], bool)

    def rows(self) -> Iterator[Rows]:
        """Calls that r probes recorded."""
        hits = self.hits()
        return calls(hits, len(self.recording.tids), self._function())

    def sums(self, header: int | None = None) -> None:
        """None."""

    def tally(self) -> None:
        """None."""

    def accesses(self) -> None:
        """None."""

    def notes(self) -> list[str]:
        """Hits that are not whole, bytes outside of any event, and the formats' remarks."""
        torn = self._all.torn
        lost = [f"{torn} hit{'s' * (torn > 1)} without all values"] if torn else []
        return [*self.recording.remarks, *lost, *self._decoder.notes]

    def close(self) -> None:
        """Do nothing: all of it has been read."""


def open_stream(
    path: Path, image: Image, window: Window, *, force: bool = False
) -> BootTrace | HookTrace:
    """Read all of a stream. Raises InputError if it has no event or, without ``force``, if most of
    it is something else; UsageError if the image has no boot tracer."""
    if not force:
        require_no_other(path)
    source = find_source(image)
    decoder = Decoder(source)
    events = list(read_stream(path, decoder))
    if not events:
        raise InputError(path, "the file is empty" if not decoder.skipped else NONE, HINT)
    if decoder.is_foreign and not force:
        found = f"only {decoder.events} events of this kernel, and {decoder.notes[0]}"
        raise InputError(path, found, f"{HINT}; use --force to read it")
    read = BootTrace if source.hooked is None else HookTrace
    return read(Stream(path, image, source, decoder, events), window)
