# SPDX-License-Identifier: MIT
"""The histograms of probes in a trace's header (struct trace_hist of stubs/runtime/trace.h)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.layout import structure
from ftpatch.probe.definition import SIGNED, TYPES, Fetch, Hist, Key, Source
from ftpatch.probe.trace_probes import Probe, show_of
from ftpatch.trace.hits import HistKey, HistRow, HistSum, HistTable, Show
from ftpatch.trace.reader import Trace

__all__ = ["read_hists"]

ENTRY = structure("trace_hist")
MADE = 1
"""In a hash: the entry is whole."""
WORD = 1 << 64
FLIP = 1 << 63


def read_hists(trace: Trace, told: Sequence[Sequence[Probe]]) -> list[HistTable]:
    """Read those of all files. ``told``: the probes of each. Raises InputError for one that cannot
    be read."""
    return [
        _table(trace, file, probe, held)
        for file, probes in enumerate(told)
        for probe, held in _tables(trace, file, probes)
    ]


def _tables(
    trace: Trace, file: int, probes: Sequence[Probe]
) -> Iterator[tuple[Probe, NDArray[np.void]]]:
    """Each probe's entries: they are the last of what precedes a file's events."""
    source = trace.sources[file]
    sizes = [one.definition.hist.size if one.definition.hist else 0 for one in probes]
    at = source.header.header_size - sum(sizes) * ENTRY.itemsize
    if at < 0:
        raise InputError(source.header.path, "its header has no room for its histograms")
    for probe, size in zip(probes, sizes, strict=True):
        if size:
            try:
                raw = os.pread(source.fd, size * ENTRY.itemsize, at)
            except OSError as error:
                raise InputError(source.header.path, f"cannot read: {error.strerror}") from None
            raw = raw[: len(raw) // ENTRY.itemsize * ENTRY.itemsize]
            held = np.frombuffer(raw, ENTRY)
            yield probe, held[(held["hash"] & np.uint64(MADE)) > 0]
        at += size * ENTRY.itemsize


def _table(trace: Trace, file: int, probe: Probe, held: NDArray[np.void]) -> HistTable:
    hist = probe.definition.hist
    assert hist is not None
    rate, bias = trace.clocks[file].rate, trace.sources[file].header.bias
    rows = []
    for one in held:
        key = tuple(_keys(hist, one["key"], rate, bias))
        rows.append(HistRow(key, int(one["hits"]), _sums(hist, one, rate)))
    if any(key.log2 or key.buckets for key in hist.keys):
        rows.sort(key=lambda row: [one.low for one in row.key if isinstance(one.low, int)])
    else:
        rows.sort(key=lambda row: -row.hits)
    fetches = [key.fetch for key in hist.keys]
    return HistTable(
        point=probe,
        header=file,
        names=tuple(one.name.removeprefix("$") for one in fetches),
        shows=tuple(show_of(one.type) for one in fetches),
        callers=tuple(one.source is Source.CALLER for one in fetches),
        sums=tuple(one.name.removeprefix("$") for one in hist.values),
        rows=tuple(rows),
    )


def _keys(hist: Hist, words: NDArray[np.uint64], rate: float, bias: int) -> Iterator[HistKey]:
    for number, key in enumerate(hist.keys):
        if show_of(key.fetch.type) is Show.STRING:
            raw = words.tobytes()
            yield HistKey(raw[:-1].partition(b"\0")[0])
            return
        yield _key(key, int(words[number]), rate, bias)


def _key(key: Key, word: int, rate: float, bias: int) -> HistKey:
    fetch = key.fetch
    if fetch.source is Source.CALLER:
        return HistKey((word + bias) % WORD)
    scale = rate if fetch.source is Source.LATENCY else 1
    if key.log2:  # the number of its bits
        low, high = (1 << word >> 1) if word else 0, (1 << min(word, 64)) - 1
        return HistKey(int(low * scale), int(high * scale))
    word = _signed(fetch, word)
    if key.buckets:
        low = word * key.buckets
        return HistKey(int(low * scale), int((low + key.buckets - 1) * scale))
    return HistKey(int(word * scale))


def _signed(fetch: Fetch, word: int) -> int:
    if fetch.type in SIGNED:
        return word - WORD if word >= FLIP else word
    return word & ((1 << 8 * TYPES[fetch.type]) - 1)


def _sums(hist: Hist, entry: np.void, rate: float) -> tuple[HistSum, ...]:
    out = []
    for number, fetch in enumerate(hist.values):
        scale = rate if fetch.source is Source.LATENCY else 1
        signed = fetch.type in SIGNED
        total, least, most = (int(entry[name][number]) for name in ("sum", "least", "most"))
        if not signed:  # ordered by the runtime as signed numbers
            total, least, most = total % WORD, least % WORD ^ FLIP, most % WORD ^ FLIP
        out.append(HistSum(int(total * scale), int(least * scale), int(most * scale)))
    return tuple(out)
