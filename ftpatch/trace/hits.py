"""Events of probes, of all traces together and by time."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.probe.definition import Fetch
from ftpatch.probe.definition import Source as From
from ftpatch.probe.steps import STRING_WORDS
from ftpatch.trace.decode import BLOCK, decode
from ftpatch.trace.probed import Probe, read_probes
from ftpatch.trace.reader import Trace

__all__ = ["Hit", "Hits", "read_hits"]

HIT, RETURNED, TIME = 1, 2, 7
"""enum trace_probe_event, and EVENT_TIME."""
Value = int | bytes | None


@dataclass(frozen=True)
class Hit:
    """One event. ``time`` in nanoseconds since the start; ``caller``: where an r probe's function
    returned to (address in memory), and ``duration``: nanoseconds that it took; None of others.
    ``values`` of its fetches: None for what could not be read, else a number, or bytes of a string.
    """

    file: int
    thread: int
    time: int
    probe: Probe
    caller: int | None
    duration: int | None
    values: tuple[Value, ...]


class Hits:
    """n events by time. ``file``, ``thread``, ``number`` (of the file's probe) int32[n], ``time``
    int64[n] (nanoseconds), ``at`` int64[n]: byte in the file of the event's first word."""

    def __init__(self, trace: Trace, probes: list[list[Probe]]) -> None:
        self._trace, self.probes = trace, probes
        self._maps: list[mmap.mmap | bytes] = [_mapped(source.fd) for source in trace.sources]
        parts = list(self._parts())
        columns = (
            [np.concatenate(one) for one in zip(*parts, strict=True)]
            if parts
            else [np.empty(0, np.int64)] * 5
        )
        order = np.argsort(columns[3], kind="stable")
        self.file, self.thread, self.number, self.time, self.at = (one[order] for one in columns)

    def __len__(self) -> int:
        return len(self.time)

    def counts(self, file: int) -> list[int]:
        """How many events each probe of a file has."""
        number = self.number[self.file == file]
        counts: list[int] = np.bincount(number, minlength=len(self.probes[file])).tolist()
        return counts

    def __iter__(self) -> Iterator[Hit]:
        columns = (self.file, self.thread, self.number, self.time, self.at)
        lists = (column.tolist() for column in columns)
        for file, thread, number, time, at in zip(*lists, strict=True):
            probe = self.probes[file][number]
            count = 1 + probe.before + probe.words
            words = np.frombuffer(self._maps[file], "<u8", count, at)[1:].tolist()
            caller = duration = None
            if probe.returns:
                caller, ticks, *words = words
                hz = self._trace.headers[file].hz
                duration = round(ticks * 1e9 / hz) if hz else ticks
            comm = self._trace.headers[file].comm
            values = tuple(_values(probe, words, comm))
            yield Hit(file, thread, time, probe, caller, duration, values)

    def _parts(self) -> Iterator[tuple[NDArray[np.int64], ...]]:
        """Columns of one chunk after the other."""
        chunks, trace = self._trace.chunks, self._trace
        low, high = trace.window.span
        for row in range(len(chunks)):
            file, offset = int(chunks.file[row]), int(chunks.offset[row])
            probes = self.probes[file]
            sizes = np.array([one.before + one.words for one in probes] or [0], np.uint8)
            length = int(chunks.words[row])
            words = np.zeros((1, -(-max(length, 1) // BLOCK) * BLOCK), np.uint64)
            held = bytes(self._maps[file][offset : offset + 8 * length])
            words[0, : len(held) // 8] = np.frombuffer(held, "<u8", len(held) // 8)
            kind = words & np.uint64(7)
            number = (words >> np.uint64(3)) & np.uint64((1 << 28) - 1)
            known = number < len(probes)
            behind = np.where(
                np.isin(kind, (HIT, RETURNED)) & known,
                sizes[np.where(known, number, 0).astype(np.intp)],
                (kind == TIME).astype(np.uint8),
            )
            base = chunks.base[row : row + 1]
            found = decode(words, chunks.words[row : row + 1], base, behind.astype(np.uint8))
            returns = np.array([one.returns for one in probes] or [False])
            good = found.func < len(probes)
            safe = np.where(good, found.func, 0)
            good &= found.type == np.where(returns[safe], RETURNED, HIT)
            trace.batches.torn += found.torn + int((~good).any())
            time = trace.clocks[file].times(found.ticks)
            good &= (time >= low) & (time <= high)
            count = int(good.sum())
            yield (
                np.full(count, file),
                np.full(count, int(chunks.thread[row])),
                found.func[good].astype(np.int64),
                time[good],
                offset + 8 * found.at[good].astype(np.int64),
            )


def read_hits(trace: Trace) -> Hits:
    """The events of all traces. Raises InputError for a header that cannot be right."""
    return Hits(trace, [read_probes(source.fd, source.header) for source in trace.sources])


def _mapped(fd: int) -> mmap.mmap | bytes:
    try:
        return mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise InputError(None, f"cannot map the trace: {error}") from None


def _values(probe: Probe, words: list[int], comm: str) -> Iterator[Value]:
    faults = words[0] if probe.faults else 0
    at = int(probe.faults)
    for number, fetch in enumerate(_stored(probe)):
        if fetch is None:
            yield comm.encode()
        elif fetch.type == "string":
            held = np.array(words[at : at + STRING_WORDS], np.uint64).tobytes()
            yield None if words[at] == (1 << 64) - 1 else held.partition(b"\0")[0]
            at += STRING_WORDS
        else:
            yield None if faults >> (number - _comms(probe, number)) & 1 else words[at]
            at += 1


def _stored(probe: Probe) -> Iterator[Fetch | None]:
    """The fetches; None for the program's name, which no event has."""
    for fetch in probe.definition.fetches:
        yield None if fetch.source == From.COMM else fetch


def _comms(probe: Probe, number: int) -> int:
    return sum(one.source == From.COMM for one in probe.definition.fetches[:number])
