"""Calls that r probes saw, as rows: with them profiles, graphs and stacks are what they are of
tracers. They only tell of a call when it returns: its begin is put where it was."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.hits import Hits
from ftpatch.trace.batches import Batch
from ftpatch.trace.decode import Event
from ftpatch.trace.match import Matcher
from ftpatch.trace.rows import Kind, Rows

__all__ = ["calls", "limit_depth"]

STEP = 1 << 18
"""Rows of a batch."""


def calls(hits: Hits, functions: NDArray[np.int32]) -> Iterator[Rows]:
    """Rows of all calls; events of p probes are points. ``function`` of each is that of its probe,
    in ``functions`` int32[p]; ``value`` is the hit that it is of, but of rows of kind OPEN, LEFT
    and END."""
    # Of several probes that saw one call, the last one told is the call, and others are points.
    returned = hits.returns[hits.probe] & ~_again(hits) if len(hits) else np.empty(0, bool)
    leave = np.flatnonzero(returned)
    # A call begins behind all that was there until then, and before itself.
    place = np.minimum(np.searchsorted(hits.time, hits.begin[leave], side="right"), leave)
    order = np.lexsort((-leave, hits.begin[leave], place))
    hit = np.insert(np.arange(len(hits)), place[order], leave[order])
    enters = np.insert(np.zeros(len(hits), bool), place[order], True)
    time = np.where(enters, hits.begin[hit], hits.time[hit])
    # Events of type TIME are points to Matcher.
    type = np.where(enters, Event.ENTRY, np.where(returned[hit], Event.EXIT, Event.TIME))
    last = int(np.iinfo(np.int64).max)
    matcher = Matcher(np.zeros(len(hits.trace.tids), bool))
    for first in range(0, len(hit), STEP):
        rows = slice(first, first + STEP)
        until = int(time[first + STEP]) if first + STEP < len(hit) else last
        by_thread = np.argsort(hits.thread[hit[rows]], kind="stable")
        which = hit[rows][by_thread]
        batch = Batch(
            thread=hits.thread[which],
            time=time[rows][by_thread],
            type=type[rows][by_thread].astype(np.uint8),
            func=functions[hits.probe[which]].astype(np.uint32),
            value=which.astype(np.uint64),
            args=np.full(len(which), -1, np.int32),
            arguments=np.empty((0, 6), np.uint64),
            until=until,
        )
        found = matcher.feed(batch)
        yield found.but(function=found.func.astype(np.int32))


def limit_depth(hits: Hits) -> None:
    """Leave out what is deeper in calls than the window's depth."""
    depth = hits.trace.window.depth
    if depth is None:
        return
    kept = np.zeros(len(hits), bool)
    for rows in calls(hits, np.arange(len(hits.probes), dtype=np.int32)):
        told = np.isin(rows.kind, (Kind.LEAVE, Kind.POINT, Kind.RETURN)) & (rows.level < depth)
        kept[rows.value[told].astype(np.intp)] = True
    hits.keep(kept)


def _again(hits: Hits) -> NDArray[np.bool_]:
    """Returns that the next event of their thread tells again, for another probe: bool[n]."""
    order = np.argsort(hits.thread, kind="stable")
    here, after = order[:-1], order[1:]
    ip = np.array([probe.ip for probe in hits.probes], np.uint64)[hits.probe]
    returns = hits.returns[hits.probe]
    same = (hits.thread[here] == hits.thread[after]) & (hits.begin[here] == hits.begin[after])
    same &= (ip[here] == ip[after]) & (hits.probe[here] != hits.probe[after])
    out = np.zeros(len(hits), bool)
    out[here[same & returns[here] & returns[after]]] = True
    return out
