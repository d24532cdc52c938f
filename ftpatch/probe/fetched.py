"""Fetched values as columns: the words behind events by their definitions' fetches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.definition import TYPES, Fetch, Source
from ftpatch.probe.hits import Hits
from ftpatch.probe.steps import STRING_WORDS
from ftpatch.probe.trace_probes import Probe

__all__ = ["MOST", "Fetched", "Seen", "seen"]

MOST = 8 * STRING_WORDS - 1
"""Bytes of a string that an event holds."""


@dataclass(frozen=True)
class Fetched:
    """One value of n events. ``number``: of its type's width, uint64[n], or int64[n] where that is
    signed; of a string 0. ``text``: uint8[n, 64], zeros behind a string's end; of a number
    uint8[n, 0]. ``lost`` bool[n]: what could not be read. ``cut`` bool[n]: strings that go on, or,
    in traces of old, that may."""

    fetch: Fetch
    number: NDArray[np.uint64] | NDArray[np.int64]
    text: NDArray[np.uint8]
    lost: NDArray[np.bool_]
    cut: NDArray[np.bool_]

    def strings(self) -> list[bytes]:
        """The bytes of strings."""
        return list(np.ascontiguousarray(self.text).view(f"S{self.text.shape[1]}").ravel().tolist())


@dataclass(frozen=True)
class Seen:
    """Some events of the probe ``number``: ``rows`` intp[n] of ``hits``. ``caller`` uint64[n]:
    where an r probe's function returned to (address in memory), else empty."""

    hits: Hits
    number: int
    rows: NDArray[np.intp]
    caller: NDArray[np.uint64]
    values: tuple[Fetched, ...]

    @property
    def probe(self) -> Probe:
        """Theirs."""
        return self.hits.probes[self.number]

    @property
    def file(self) -> int:
        """A trace that has the probe."""
        return self.hits.files[self.number]

    @property
    def thread(self) -> NDArray[np.int32]:
        """Of each, int32[n]."""
        return np.asarray(self.hits.thread[self.rows])

    @property
    def time(self) -> NDArray[np.int64]:
        """Nanoseconds since the start, int64[n]."""
        return np.asarray(self.hits.time[self.rows])

    @property
    def duration(self) -> NDArray[np.int64]:
        """Nanoseconds that the calls took, int64[n]; 0 of a p probe."""
        return np.asarray(self.time - self.hits.begin[self.rows])


def seen(hits: Hits, number: int, rows: NDArray[np.intp]) -> Seen:
    """Fetched values of some events, all of one probe."""
    probe = hits.probes[number]
    words = hits.words(rows, probe.before + probe.words)
    caller = words[:, 0] if probe.returns else np.empty(0, np.uint64)
    comms = np.array([comm.encode() for comm in hits.trace.comms] or [b""], f"S{MOST + 1}")
    comm = comms.view(np.uint8).reshape(len(comms), MOST + 1)
    values = _fetched(probe, words[:, probe.before :], comm[hits.thread[rows]])
    return Seen(hits, number, rows, caller, tuple(values))


def _fetched(probe: Probe, words: NDArray[np.uint64], comm: NDArray[np.uint8]) -> Iterator[Fetched]:
    n, at, bit = len(words), int(probe.faults), np.uint64(0)
    faults = words[:, 0] if probe.faults else np.zeros(n, np.uint64)
    none, no = np.zeros(n, np.uint64), np.zeros(n, bool)
    for fetch in probe.definition.fetches:
        if fetch.source is Source.COMM:  # no event has it
            yield Fetched(fetch, none, comm, no, no)
            continue
        if fetch.type == "string":
            raw = np.ascontiguousarray(words[:, at : at + STRING_WORDS])
            lost = raw[:, 0] == np.uint64((1 << 64) - 1)
            text = raw.view(np.uint8).reshape(n, MOST + 1)
            there = np.logical_and.accumulate(text != 0, axis=1) & ~lost[:, None]
            cut = there[:, MOST if probe.tells_cut else MOST - 1].copy()
            there[:, MOST] = False
            yield Fetched(fetch, none, text * there, lost, cut)
            at += STRING_WORDS
        else:
            lost = (faults >> bit & np.uint64(1)) > 0
            shift = np.uint64(64 - 8 * TYPES[fetch.type])
            moved = words[:, at] << shift
            signed = fetch.type[0] == "s" and fetch.type != "symbol"
            number = moved.view(np.int64) >> shift.view(np.int64) if signed else moved >> shift
            yield Fetched(fetch, number, np.empty((n, 0), np.uint8), lost, no)
            at += 1
        bit += np.uint64(1)
