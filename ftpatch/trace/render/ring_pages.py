# SPDX-License-Identifier: MIT
"""Pages as ftrace's ring buffer has them: events with the times between them.

Source: include/linux/ring_buffer.h and kernel/trace/ring_buffer.c: struct buffer_data_page, and
enum ring_buffer_type for the word in front of each event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["HEADER_EVENT", "HEADER_PAGE", "PAGE", "pages"]

PAGE = 4096
"""Bytes of a page."""
HEAD = 16
"""Bytes of its head: the time of its first event, and how many bytes of events there are."""
DELTA_BITS = 27
"""Bits of the nanoseconds since the event before."""
LENGTH_BITS = 5
"""Bits of the length, in words, below those."""
TIME_EXTEND = 30
"""In place of a length: an entry of 8 bytes, whose second word continues the nanoseconds."""
EXTENDED = 8
MAX_DELTA = (1 << (DELTA_BITS + 32)) - 1
"""Nanoseconds that both hold: 18 years."""
HEADER_PAGE = """\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
"""
"""Description of a page's head."""
HEADER_EVENT = """\
type_len    :    5 bits
time_delta  :   27 bits
array       :   32 bits

padding     : type == 29
time_extend : type == 30
data max type_len  == 28
"""
"""Description of the word in front of an event."""


def pages(
    time: NDArray[np.int64], kind: NDArray[np.uint8], events: Mapping[int, NDArray[np.uint8]]
) -> bytes:
    """Whole pages of n events of one buffer. ``time`` int64[n], nanoseconds, never falling;
    ``kind`` uint8[n]; ``events``: of each kind the bytes of its events in their order,
    uint8[m, 4 * k]."""
    delta = np.diff(time, prepend=time[:1])
    far = delta >= 1 << DELTA_BITS
    size = np.empty(len(time), np.int64)
    for number, raw in events.items():
        size[kind == number] = 4 + raw.shape[1]
    size += np.where(far, EXTENDED, 0)
    bounds = np.array([*_bounds(size), len(time)])
    first, lengths = bounds[:-1], np.diff(bounds)
    delta[first] = 0  # the page tells it
    behind = np.cumsum(size)
    before = behind - size
    page = np.repeat(np.arange(len(first)), lengths)
    at = page * PAGE + HEAD + before - before[first][page]
    out = np.zeros(len(first) * PAGE, np.uint8)
    heads = out.reshape(-1, PAGE)[:, :HEAD]
    heads[:, :8] = _bytes(time[first].astype("<u8"))
    heads[:, 8:] = _bytes((behind[bounds[1:] - 1] - before[first]).astype("<u8"))
    beyond = np.flatnonzero(far)
    _put(out, at[beyond], _extends(delta[beyond]))
    at[beyond] += EXTENDED
    delta[beyond] = 0
    for value, raw in events.items():
        mine = np.flatnonzero(kind == value)
        words = delta[mine] << LENGTH_BITS | raw.shape[1] // 4
        _put(out, at[mine], np.hstack([_bytes(words.astype("<u4")), raw]))
    return out.tobytes()


def _bounds(size: NDArray[np.int64]) -> Iterator[int]:
    """Where pages begin, by the sizes of the events."""
    behind, at, full = np.cumsum(size), 0, 0
    while at < len(size):
        yield at
        at = int(np.searchsorted(behind, full + PAGE - HEAD, side="right"))
        full = int(behind[at - 1])


def _extends(delta: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Entries that tell longer times."""
    delta = np.minimum(delta, MAX_DELTA)
    low = (delta & ((1 << DELTA_BITS) - 1)) << LENGTH_BITS | TIME_EXTEND
    return _bytes((low | delta >> DELTA_BITS << 32).astype("<u8"))


def _bytes(values: NDArray[np.unsignedinteger]) -> NDArray[np.uint8]:
    """The bytes of each, uint8[n, w]."""
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.itemsize)


def _put(out: NDArray[np.uint8], at: NDArray[np.int64], rows: NDArray[np.uint8]) -> None:
    """Write rows of bytes at their places."""
    out[at[:, None] + np.arange(rows.shape[1])] = rows
