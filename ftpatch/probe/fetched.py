# SPDX-License-Identifier: MIT
"""Fetched values as columns, decoded from the words of events as their definitions say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.probe.definition import TYPES, Source
from ftpatch.probe.fetching import STRING_WORDS
from ftpatch.probe.trace_probes import STRING_ROOM, Probe
from ftpatch.trace.hits import Column, Show

__all__ = ["comm_table", "fetched"]


def comm_table(comms: list[str]) -> NDArray[np.uint8]:
    """Process names in the form of string values, uint8[t, STRING_ROOM + 1]."""
    table = np.array([comm.encode() for comm in comms] or [b""], f"S{STRING_ROOM + 1}")
    return table.view(np.uint8).reshape(len(table), STRING_ROOM + 1)


def fetched(probe: Probe, words: NDArray[np.uint64], comm: NDArray[np.uint8]) -> Iterator[Column]:
    """Decode the values of n events of one probe. ``words`` uint64[n, w] follow each event's common
    part; ``comm`` uint8[n, STRING_ROOM + 1] is each one's process name."""
    n, at, bit = len(words), int(probe.faults), np.uint64(0)
    faults = words[:, 0] if probe.faults else np.zeros(n, np.uint64)
    none, no = np.zeros(n, np.uint64), np.zeros(n, bool)
    for fetch, field in zip(probe.definition.fetches, probe.fields, strict=True):
        if fetch.source is Source.COMM:  # not stored in events
            yield Column(field=field, number=none, text=comm, lost=no, cut=no)
            continue
        if field.show is Show.STRING:
            raw = np.ascontiguousarray(words[:, at : at + STRING_WORDS])
            lost = raw[:, 0] == np.uint64((1 << 64) - 1)
            text = probe.order.rows(raw, 8).reshape(n, STRING_ROOM + 1)
            there = np.logical_and.accumulate(text != 0, axis=1) & ~lost[:, None]
            cut = there[:, STRING_ROOM if probe.tells_cut else STRING_ROOM - 1].copy()
            there[:, STRING_ROOM] = False
            if 0 < field.size <= STRING_ROOM:
                there[:, field.size :] = False
                cut[:] = False
            yield Column(field=field, number=none, text=text * there, lost=lost, cut=cut)
            at += STRING_WORDS
        else:
            lost = (faults >> bit & np.uint64(1)) > 0
            shift = np.uint64(64 - 8 * TYPES[fetch.type])
            moved = words[:, at] << shift
            signed = field.show is Show.SIGNED
            number = moved.view(np.int64) >> shift.view(np.int64) if signed else moved >> shift
            yield Column(
                field=field, number=number, text=np.empty((n, 0), np.uint8), lost=lost, cut=no
            )
            at += 1
        bit += np.uint64(1)
