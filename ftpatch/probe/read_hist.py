# SPDX-License-Identifier: MIT
"""The histograms of probes in a trace's header (struct trace_hist of stubs/runtime/trace.h)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder
from ftpatch.errors import InputError
from ftpatch.layout import structure
from ftpatch.probe.definition import FLOATS, SIGNED, TYPES, Fetch, Hist, Key, Source
from ftpatch.probe.fetching import STRING_WORDS, entry_size
from ftpatch.probe.trace_probes import Probe, show_of
from ftpatch.trace.hits import HistKey, HistRow, HistSum, HistTable, Show, floats
from ftpatch.trace.reader import Opened

__all__ = ["read_hists"]

ENTRY = structure("trace_hist")
MADE = 1
"""In a hash: the entry is whole."""
WORD = 1 << 64
FLIP = 1 << 63
STACK = Source.FRAMES.value


def read_hists(trace: Opened, told: Sequence[Sequence[Probe]]) -> list[HistTable]:
    """Read those of all processes. ``told``: the probes of each. Raises InputError for one that
    cannot be read."""
    return [
        _table(trace, process, probe, held)
        for process, probes in enumerate(told)
        for probe, held in _tables(trace, process, probes)
    ]


@dataclass(frozen=True)
class _Entries:
    """The entries of a histogram: ``held`` of struct trace_hist, and all words of their keys,
    uint64[n, words]."""

    held: NDArray[np.void]
    keys: NDArray[np.uint64]


def _entries(raw: bytes, size: int, order: ByteOrder) -> _Entries:
    """Those that are whole, of ``size`` bytes each."""
    raw = raw[: len(raw) // size * size]
    rows = np.frombuffer(raw, np.uint8).reshape(-1, size)
    held = np.ascontiguousarray(rows[:, : ENTRY.itemsize]).view(order.record(ENTRY)).ravel()
    behind = order.unsigned(rows[:, ENTRY.itemsize :], 8).reshape(len(rows), -1)
    made = (held["hash"] & np.uint64(MADE)) > 0
    return _Entries(held[made], np.column_stack([held["key"], behind])[made])


def _tables(
    trace: Opened, process: int, probes: Sequence[Probe]
) -> Iterator[tuple[Probe, _Entries]]:
    """Each probe's entries: they are the last of what precedes a file's events."""
    source = trace.sources[trace.runs[process][0]]  # with histograms, it has one file
    hists = [one.definition.hist for one in probes]
    sizes = [hist.size * entry_size(hist) if hist else 0 for hist in hists]
    at = source.header.header_size - sum(sizes)
    if at < 0:
        raise InputError(source.header.path, "its header has no room for its histograms")
    for probe, hist, size in zip(probes, hists, sizes, strict=True):
        if hist:
            try:
                raw = os.pread(source.fd, size, at)
            except OSError as error:
                raise InputError(source.header.path, f"cannot read: {error.strerror}") from None
            yield probe, _entries(raw, entry_size(hist), source.header.order)
        at += size


def _table(trace: Opened, process: int, probe: Probe, entries: _Entries) -> HistTable:
    hist = probe.definition.hist
    assert hist is not None
    file = trace.runs[process][0]
    rate, bias = trace.clocks[file].rate, trace.sources[file].header.bias
    rows = []
    for one, words in zip(entries.held, entries.keys, strict=True):
        key = tuple(_keys(probe, words, rate, bias))
        rows.append(HistRow(key, int(one["hits"]), _sums(hist, one, rate)))
    if any(key.log2 or key.buckets for key in hist.keys):
        rows.sort(key=lambda row: [one.low for one in row.key if isinstance(one.low, int)])
    else:
        rows.sort(key=lambda row: (-row.hits, [one.low for one in row.key]))
    fetches = [key.fetch for key in hist.keys]
    return HistTable(
        point=probe,
        header=process,
        names=tuple(
            STACK if one.source is Source.FRAMES else one.name.removeprefix("$") for one in fetches
        ),
        shows=tuple(show_of(one.type) for one in fetches),
        callers=tuple(one.source in (Source.CALLER, Source.FRAMES) for one in fetches),
        sums=tuple(one.name.removeprefix("$") for one in hist.values),
        rows=tuple(rows),
    )


def _keys(probe: Probe, words: NDArray[np.uint64], rate: float, bias: int) -> Iterator[HistKey]:
    at, hist = 0, probe.definition.hist
    for key in hist.keys if hist else ():
        if show_of(key.fetch.type) is Show.STRING:
            raw = probe.order.rows(words[at : at + STRING_WORDS], 8).tobytes()
            yield HistKey(raw[:-1].partition(b"\0")[0])
            at += STRING_WORDS
        elif key.fetch.source is Source.FRAMES:
            found = words[at : at + key.fetch.value]
            yield HistKey(tuple((one + bias) % WORD for one in found[found > 0].tolist()))
            at += key.fetch.value
        else:
            yield _key(key, int(words[at]), rate, bias)
            at += 1


def _key(key: Key, word: int, rate: float, bias: int) -> HistKey:
    fetch = key.fetch
    if fetch.source is Source.CALLER and not (key.log2 or key.buckets):
        return HistKey((word + bias) % WORD)
    if fetch.type in FLOATS:
        return HistKey(_float(word, fetch.type))
    scale = rate if fetch.source is Source.LATENCY else 1
    if key.log2:
        low, high = _magnitudes(word)
        return HistKey(int(low * scale), int(high * scale))
    word = _signed(fetch, word)
    if key.buckets:
        low = word * key.buckets
        return HistKey(int(low * scale), int((low + key.buckets - 1) * scale))
    return HistKey(int(word * scale))


def _magnitudes(word: int) -> tuple[int, int]:
    """The least and the greatest number of so many bits; less than 0 of a negative one."""
    bits = word - WORD if word >= FLIP else word
    low, high = 1 << min(abs(bits), 64) >> 1, (1 << min(abs(bits), 64)) - 1
    return (low, high) if bits >= 0 else (max(-high, -FLIP), -low)


def _signed(fetch: Fetch, word: int) -> int:
    if fetch.type in SIGNED:
        return word - WORD if word >= FLIP else word
    return word & ((1 << 8 * TYPES[fetch.type]) - 1)


def _float(word: int, type: str) -> float:
    """The float that the runtime has made a number of, by its sign and magnitude."""
    negative, top = word >= FLIP, 8 * TYPES[type] - 1
    magnitude = WORD - word if negative else word
    bits = np.array([min(magnitude, (1 << top) - 1) | negative << top], np.uint64)
    return float(str(floats(bits, show_of(type))[0]))


def _float_sum(type: str, total: int, least: int, most: int) -> HistSum:
    """Sums are doubles, whatever the values are; without any but NaN none is least."""
    (double,) = floats(np.array([total % WORD], np.uint64), Show.DOUBLE)
    if least > most:
        return HistSum(float(double), np.nan, np.nan)
    ends = (_float(end % WORD, "f64") for end in (least, most))
    narrow = np.float32 if type == "f32" else np.float64
    return HistSum(float(double), *(float(str(narrow(end))) for end in ends))


def _sums(hist: Hist, entry: np.void, rate: float) -> tuple[HistSum, ...]:
    out = []
    for number, fetch in enumerate(hist.values):
        scale = rate if fetch.source is Source.LATENCY else 1
        signed = fetch.type in SIGNED
        total, least, most = (int(entry[name][number]) for name in ("sum", "least", "most"))
        if fetch.type in FLOATS:
            out.append(_float_sum(fetch.type, total, least, most))
            continue
        if not signed:  # ordered by the runtime as signed numbers
            total, least, most = total % WORD, least % WORD ^ FLIP, most % WORD ^ FLIP
        out.append(HistSum(int(total * scale), int(least * scale), int(most * scale)))
    return tuple(out)
