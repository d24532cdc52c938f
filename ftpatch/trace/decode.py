# SPDX-License-Identifier: MIT
"""Decoding chunks' words into events.

Events vary in length, so where one begins depends on all that precede it. Instead, blocks of words
are walked in parallel, once for each number of words by which an event may reach into a block; then
the blocks are chained, and walked again from where each really begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import looked_up
from ftpatch.layout import constants

__all__ = ["BLOCK", "FUNC", "FUNC_SHIFT", "TYPE", "Decoded", "Event", "decode"]

BLOCK = 64
"""Words per block, walked one by one; rows are padded to a multiple."""


class Event(IntEnum):
    """Types of events, as in enum trace_event, plus one of our own."""

    END = 0
    ENTRY = constants["EVENT_ENTRY"]
    EXIT = constants["EVENT_EXIT"]
    ENTRY_FROM = constants["EVENT_ENTRY_FROM"]
    ENTRY_ARGS = constants["EVENT_ENTRY_ARGS"]
    EXIT_VALUE = constants["EVENT_EXIT_VALUE"]
    UNWOUND = constants["EVENT_UNWOUND"]
    TIME = constants["EVENT_TIME"]
    SYNC = 8
    """Chunks are missing before this; ``func`` is the number of frames open then."""


FUNC_SHIFT = constants["TYPE_BITS"]
TICKS_SHIFT = constants["TICKS_SHIFT"]
TYPE = (1 << FUNC_SHIFT) - 1
FUNC = (1 << constants["FUNC_BITS"]) - 1
BEHIND = np.zeros(TYPE + 1, np.uint8)
"""Words after the first, by type of event."""
BEHIND[[Event.ENTRY_FROM, Event.EXIT_VALUE, Event.TIME]] = 1
BEHIND[Event.ENTRY_ARGS] = 6


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """n events of k chunks, chunk by chunk, without TIME events. ``row`` intp[n]: which chunk.
    ``type`` uint8[n], ``func`` uint32[n], ``ticks`` uint64[n] (absolute). ``at`` intp[n]: index of
    the event's word in the flattened words. ``base`` uint64[k], ``used`` intp[k]: the base at each
    chunk's end, and the words its events took. ``ended`` bool[k]: whether they stopped before the
    last word. ``torn``: the number of chunks that end in an invalid event."""

    row: NDArray[np.intp]
    type: NDArray[np.uint8]
    func: NDArray[np.uint32]
    ticks: NDArray[np.uint64]
    at: NDArray[np.intp]
    base: NDArray[np.uint64]
    used: NDArray[np.intp]
    ended: NDArray[np.bool_]
    torn: int


def decode(
    words: NDArray[np.uint64],
    length: NDArray[np.int64],
    base: NDArray[np.uint64],
    behind: NDArray[np.uint8] | NDArray[np.uint16] | None = None,
    *,
    there: NDArray[np.bool_] | None = None,
) -> Decoded:
    """Decode chunks. ``words`` uint64[k, n], n a multiple of BLOCK, hold ``length`` int64[k] words
    each, then zeros; ``base`` uint64[k]: each chunk's ticks. ``behind`` uint8[k, n]: the words that
    follow each if an event begins there, for types of variable length, as uint16 if they may be
    many. ``there`` bool[k, n]: where events may begin; a chunk ends with the first that is not."""
    chunks, width = words.shape
    types = words.view(np.uint8).reshape(chunks, width, 8)[:, :, 0] & np.uint8(TYPE)
    if there is not None:
        types = np.where(there, types, np.uint8(Event.END))
    behind = looked_up(BEHIND, types).reshape(types.shape) if behind is None else behind
    starts = _starts(behind) if behind.dtype == np.uint8 else _followed(behind, types)
    ends = starts & (types == Event.END)
    ended = ends.any(axis=1)
    stop = np.where(ended, ends.argmax(axis=1), width)
    wrong = words[ended, stop[ended]] != 0
    torn = int((wrong if there is None else wrong & there[ended, stop[ended]]).sum())
    for begins, after in zip(starts, stop.tolist(), strict=True):
        begins[after:] = False
    at = np.flatnonzero(starts)
    counts = np.count_nonzero(starts, axis=1)
    # A chunk's last event may extend past the available words.
    last = np.cumsum(counts) - 1
    some = np.flatnonzero(counts)
    flat, kinds = words.ravel(), types.ravel()
    used = np.zeros(chunks, np.intp)
    used[some] = at[last[some]] - some * width + 1 + behind.ravel()[at[last[some]]]
    over = some[used[some] > length[some]]
    if len(over):
        used[over] = at[last[over]] - over * width
        at, counts = np.delete(at, last[over]), counts - np.isin(np.arange(chunks), over)
    row = np.repeat(np.arange(chunks), counts)
    word, kind = flat[at], kinds[at]
    times, base = _bases(flat, at, row, kind, base)
    ticks = times + (word >> np.uint64(TICKS_SHIFT))
    # The lower half holds type and function, and one bit of the ticks.
    func = (word.astype(np.uint32) >> np.uint32(FUNC_SHIFT)) & np.uint32(FUNC)
    kept = kind != Event.TIME
    if not kept.all():
        row, kind, func, ticks, at = row[kept], kind[kept], func[kept], ticks[kept], at[kept]
    return Decoded(
        row=row,
        type=kind,
        func=func,
        ticks=ticks,
        at=at,
        base=base,
        used=used,
        ended=ended,
        torn=torn,
    )


def _bases(
    flat: NDArray[np.uint64],
    at: NDArray[np.intp],
    row: NDArray[np.intp],
    kind: NDArray[np.uint8],
    base: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The base of each event's ticks, uint64[n], and each chunk's last base."""
    of_event = base[row]
    settings = np.flatnonzero(kind == Event.TIME)
    if not len(settings):
        return of_event, base
    value = flat[at[settings] + 1]
    last = np.searchsorted(settings, np.arange(len(at)), side="right") - 1
    set_here = (last >= 0) & (row[settings[last]] == row)
    of_event[set_here] = value[last[set_here]]
    after = base.copy()
    after[row[settings]] = value
    return of_event, after


def _followed(behind: NDArray[Any], types: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Mark the same where events are long, and so few in a chunk: from one to the next, in all
    chunks at once."""
    chunks, width = behind.shape
    starts = np.zeros((chunks, width), bool)
    row, at = np.arange(chunks), np.zeros(chunks, np.int64)
    while len(row):
        starts[row, at] = True
        going = types[row, at] != Event.END
        row, at = row[going], at[going]
        at += 1 + behind[row, at].astype(np.int64)
        inside = at < width
        row, at = row[inside], at[inside]
    return starts


def _starts(behind: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the words where events begin, bool[k, n], given how many words would follow each."""
    chunks, width = behind.shape
    blocks = width // BLOCK
    lanes = np.ascontiguousarray(behind.reshape(-1, BLOCK).T)
    # wait: words to go until the next event begins, for each number of them at the block's begin.
    reach = max(int(behind.max()), int(BEHIND.max())) + 1
    wait = np.repeat(np.arange(reach, dtype=np.uint8)[:, None], lanes.shape[1], axis=1)
    for lane in lanes:
        begins = wait == 0
        wait -= 1
        np.copyto(wait, lane, where=begins)
    after = wait.reshape(reach, chunks, blocks)
    entry = np.zeros((chunks, blocks), np.uint8)
    every = np.arange(chunks)
    for block in range(1, blocks):
        entry[:, block] = after[entry[:, block - 1], every, block - 1]
    state = entry.ravel()
    begins_at = np.empty(lanes.shape, bool)
    for lane, begins in zip(lanes, begins_at, strict=True):
        np.equal(state, 0, out=begins)
        state -= 1
        np.copyto(state, lane, where=begins)
    return np.ascontiguousarray(begins_at.T).reshape(chunks, width)
