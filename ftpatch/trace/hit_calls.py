# SPDX-License-Identifier: MIT
"""Hits that are calls, as rows, so that graphs and stacks work as with tracers. Such a hit is
recorded when its call returns: an entry is inserted where the call began."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import addresses
from ftpatch.trace.address_names import Places
from ftpatch.trace.batches import Batch
from ftpatch.trace.decode import Event
from ftpatch.trace.hits import Hits
from ftpatch.trace.match import Matcher
from ftpatch.trace.narrow import narrowed
from ftpatch.trace.rows import Kind, Rows
from ftpatch.trace.source import Recording

__all__ = ["calls", "name_functions", "narrow_hits"]

STEP = 1 << 18
"""Rows per batch."""


def calls(hits: Hits, threads: int, functions: NDArray[np.int32]) -> Iterator[Rows]:
    """Convert hits to rows of calls, with ``threads`` threads; hits that are not calls become rows
    of kind POINT. ``function`` is taken from the hit's point, in ``functions`` int32[p]; ``value``
    is the index of the hit, except in rows of kind OPEN, UNWOUND and END."""
    # If several points saw one call, the last one recorded is the call; the others are points.
    returned = _returns(hits) & ~_again(hits) if len(hits) else np.empty(0, bool)
    leave = np.flatnonzero(returned)
    # A call begins after everything that was there by then, and before its own hits.
    place = np.minimum(np.searchsorted(hits.time, hits.begin[leave], side="right"), leave)
    order = np.lexsort((-leave, hits.begin[leave], place))
    hit = np.insert(np.arange(len(hits)), place[order], leave[order])
    enters = np.insert(np.zeros(len(hits), bool), place[order], True)
    time = np.where(enters, hits.begin[hit], hits.time[hit])
    # Matcher treats events of type TIME as points.
    type = np.where(enters, Event.ENTRY, np.where(returned[hit], Event.EXIT, Event.TIME))
    last = int(np.iinfo(np.int64).max)
    matcher = Matcher(np.zeros(threads, bool))
    for first in range(0, len(hit), STEP):
        rows = slice(first, first + STEP)
        until = int(time[first + STEP]) if first + STEP < len(hit) else last
        by_thread = np.argsort(hits.thread[hit[rows]], kind="stable")
        which = hit[rows][by_thread]
        batch = Batch(
            thread=hits.thread[which],
            time=time[rows][by_thread],
            type=type[rows][by_thread].astype(np.uint8),
            func=functions[hits.point[which]].astype(np.uint32),
            value=which.astype(np.uint64),
            args=np.full(len(which), -1, np.int32),
            arguments=np.empty((0, 6), np.uint64),
            until=until,
        )
        found = matcher.feed(batch)
        yield found.but(function=found.func.astype(np.int32))


def narrow_hits(hits: Hits, recording: Recording, functions: NDArray[np.int32]) -> None:
    """Leave out what the window does not show of the calls, with ``functions`` as for calls()."""
    read = partial(calls, hits, len(recording.tids), functions)
    kept = np.zeros(len(hits), bool)
    for rows in narrowed(read, recording, named=False):
        told = np.isin(rows.kind, (Kind.LEAVE, Kind.POINT, Kind.RETURN))
        kept[rows.value[told].astype(np.intp)] = True
    hits.keep(kept)


def _again(hits: Hits) -> NDArray[np.bool_]:
    """Find returns that the thread's next event records again, for another point: bool[n]."""
    order = np.argsort(hits.thread, kind="stable")
    here, after = order[:-1], order[1:]
    ip = np.array([point.ip for point in hits.points], np.uint64)[hits.point]
    returns = _returns(hits)
    same = (hits.thread[here] == hits.thread[after]) & (hits.begin[here] == hits.begin[after])
    same &= (ip[here] == ip[after]) & (hits.point[here] != hits.point[after])
    out = np.zeros(len(hits), bool)
    out[here[same & returns[here] & returns[after]]] = True
    return out


def _returns(hits: Hits) -> NDArray[np.bool_]:
    """Find the hits that are calls that returned, bool[n]."""
    return np.array([point.returns for point in hits.points], bool)[hits.point]


def name_functions(hits: Hits, recording: Recording) -> NDArray[np.int32]:
    """Number the functions of all points, int32[p], and make them the recording's."""
    places, functions = Places(recording, str), recording.functions
    known: dict[tuple[int, str, int], int] = {}
    first, out = len(functions), []
    for header, point in zip(hits.header, hits.points, strict=True):
        program = recording.program_of(header)
        name, start = places.function(header, point)
        key = recording.program[header], name, start
        number = known.setdefault(key, first + len(known))
        out.append(number)
        if number == len(functions):
            functions.name.append(name)
            functions.symbol.append(program.symbols.get(name, name))
            functions.address.append(start)
            (source,) = program.lines.places(addresses(start)) if program.lines else ("",)
            functions.source.append(source)
            functions.library.append(point.library)
    return np.array(out, np.int32)
