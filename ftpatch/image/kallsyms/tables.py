# SPDX-License-Identifier: MIT
"""Search for a stripped kernel's own symbol table by its contents.

scripts/kallsyms.c writes these, each aligned to a word (since v7.x to four bytes):

    up to v6.3                          since v6.4
    offsets, or addresses               num_syms
    relative_base                       names
    num_syms   (4 bytes; word < v4.20)  markers
    names                               token_table
    markers    (each the same)          token_index
    [seqs_of_names, v6.2]               offsets, or addresses
    token_table                         relative_base (up to v7.x)
    token_index                         seqs_of_names

    token_table  256 strings that end with NUL; those of the digits are the digits themselves
    token_index  256 x 2 bytes: where each string begins
    names        for each symbol: length (one byte, or since v6.1 two with bit 7 set), tokens
    markers      where every 256th name begins

So the digits are looked for, the index proves them, and each marker is proved by the names before
it. Addresses are read in kallsyms_addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder

__all__ = ["Tables", "find_tables"]

DIGITS = re.compile(re.escape(b"".join(b"%d\0" % digit for digit in range(10))))
ZERO = ord("0")
TRIES = 16
"""Maximum number of places with the digits to try; kernels have up to five before the right one."""
RUNS = 4
"""Maximum number of runs to try as markers, longest first, and of candidate name starts for
each."""
MANY = 1 << 10
"""Maximum number of candidates for the symbol count; some 20 are, by chance."""
REGION = 1 << 22
"""Bytes before the tokens in which to search for the markers: v6.2 has three per symbol between the
two, and no kernel has a million symbols."""
PER_MARKER = 256
"""Symbols from one marker to the next (scripts/kallsyms.c)."""
MAX_NAME = 512 + 2
"""Maximum size of a packed name: KSYM_NAME_LEN, and its length."""


@dataclass(frozen=True, slots=True)
class Tables:
    """File offsets of the tables for n symbols.

    ``tokens`` uint8[m]: token_table; ``index`` uint16[256]. ``first`` int64[n], ``length``
    int64[n]: where each packed name begins behind its length, and how many tokens it has.
    ``names`` is where the first name's length stands, ``end`` where the last name ends. ``before``:
    num_syms; ``behind``: the end of token_index.
    """

    tokens: NDArray[np.uint8] = field(repr=False)
    index: NDArray[np.uint16] = field(repr=False)
    first: NDArray[np.int64] = field(repr=False)
    length: NDArray[np.int64] = field(repr=False)
    names: int
    end: int
    before: int
    behind: int

    def __len__(self) -> int:
        return len(self.first)


def find_tables(data: NDArray[np.uint8], word: int, order: ByteOrder) -> Tables | None:
    """Find the tables in ``data`` (uint8[size], a kernel with words of ``word`` bytes in this
    ``order``); None if there are none, or damaged ones. Kernels with fewer than 257 symbols are not
    recognised."""
    for number, match in enumerate(DIGITS.finditer(data.data)):
        if number == TRIES:
            return None
        tokens = _tokens(data, match.start(), order)
        if tokens is None:
            continue
        start, at, index = tokens
        for marker, size in _markers(data, start, word, order):
            if (names := _names(data, marker, size, order)) is not None:
                return Tables(data[start:at], index, *names, behind=at + 512)
    return None


def _tokens(
    data: NDArray[np.uint8], digit: int, order: ByteOrder
) -> tuple[int, int, NDArray[np.uint16]] | None:
    """Start of token_table, position and contents of token_index; located by the string "0"."""
    ends = np.flatnonzero(data[digit : digit + (1 << 16)] == 0)[: 256 - ZERO]
    if len(ends) < 256 - ZERO:
        return None
    after = digit + int(ends[-1]) + 1
    for at in range(after, after + 8):  # aligned to 2 bytes at least, to 8 at most
        raw = data[at : at + 512].tobytes()
        if len(raw) < 512:
            return None
        index = order.unsigned(raw, 2).astype(np.uint16)
        start = digit - int(index[ZERO])
        if start < 0 or index[0]:
            continue
        stops = np.flatnonzero(data[start:after] == 0)
        if len(stops) == 256 and (stops[:-1] + 1 == index[1:]).all():
            return start, at, index
    return None


def _markers(
    data: NDArray[np.uint8], stop: int, word: int, order: ByteOrder
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Positions before ``stop`` where possible markers begin, with their values (int64[c], of which
    the last may be something else); the longest first."""
    found: list[tuple[int, int, int]] = []
    for size in sorted({4, word}):
        low = stop - min(REGION, stop) // size * size
        value = order.unsigned(data[low:stop], size).view(np.int64)
        step = np.diff(value)
        rises = (step >= 2 * PER_MARKER) & (step <= PER_MARKER * MAX_NAME)
        begins = np.flatnonzero(rises & (value[:-1] == 0))
        breaks = np.append(np.flatnonzero(~rises), len(rises))
        ends = breaks[np.searchsorted(breaks, begins)] + 1
        runs = zip(ends.tolist(), begins.tolist(), strict=True)
        found += [(end - begin, low + begin * size, size) for end, begin in runs]
    for count, at, size in sorted(found, reverse=True)[:RUNS]:
        raw = data[at : at + count * size].tobytes()
        yield at, order.unsigned(raw, size).view(np.int64)


def _names(
    data: NDArray[np.uint8], stop: int, marker: NDArray[np.int64], order: ByteOrder
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int, int] | None:
    """(first, length, names, end, before) of Tables. The names end where the markers begin, at
    ``stop``, and before their beginning stands how many they are.

        | num_syms | 0 | name ... name, as many as the number says | 0 | 0 | 512 ... | 1040 ... |
                                                                       `stop
    """
    reach = int(marker[-1]) + PER_MARKER * MAX_NAME + 16
    low = stop - min(reach, stop) // 4 * 4
    value = order.signed(data[low:stop], 4)
    room = np.arange(len(value), 0, -1) * 4  # bytes from each word up to the markers
    groups = -(-value // PER_MARKER)
    known = (groups >= 2) & (groups <= len(marker))
    last = marker[np.where(known, groups, 1) - 1]
    fits = []
    for gap in (4, 8):
        tail = room - gap - last
        good = known & (tail >= 2) & (tail <= PER_MARKER * MAX_NAME + 8)
        if gap == 8:
            good &= np.append(value[1:], 1) == 0
        fits += [(int(row), gap) for row in np.flatnonzero(good)[:MANY]]
    begin = np.array([low + 4 * row + gap for row, gap in fits], np.int64)
    for which in _reaching(data, begin, int(marker[1]))[:RUNS].tolist():
        row, gap = fits[which]
        count, at = int(value[row]), int(begin[which])
        found = _chain(data[at:stop], marker[: int(groups[row])], count)
        if found is not None:
            first, length, end = found
            if stop - at - end < 8 and not data[at + end : stop].any():
                # Of a big-endian number of eight bytes the lower half is next to the names.
                wide = order.big and gap == 4 and not at % 8 and row > 0 and not value[row - 1]
                return first + at, length, at, at + end, at - gap - 4 * wide
    return None


def _step(
    data: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts of packed names, after their lengths, and the lengths (int64[k])."""
    size = data[at].astype(np.int64)
    long = size >> 7
    size = np.where(long > 0, size & 0x7F | data[at + 1].astype(np.int64) << 7, size)
    return at + 1 + long, size


def _reaching(data: NDArray[np.uint8], begin: NDArray[np.int64], room: int) -> NDArray[np.intp]:
    """Positions from which 256 names take exactly ``room`` bytes."""
    row, at = np.arange(len(begin)), begin
    for _ in range(PER_MARKER):
        first, size = _step(data, at)
        good = (size > 0) & (first + size <= begin[row] + room) & (first + size < len(data) - 1)
        row, at = row[good], (first + size)[good]
    return np.asarray(row[at == begin[row] + room])


def _chain(
    names: NDArray[np.uint8], marker: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int] | None:
    """Step over the names, from all markers at once: where each begins after its length, its length
    (both int64[count]), and where the last ends. None if that does not match every marker."""
    lanes = len(marker)
    at, stop = marker, np.append(marker[1:], len(names))
    first = np.empty((PER_MARKER, lanes), np.int64)
    length = np.empty((PER_MARKER, lanes), np.int64)
    end = len(names) + 1
    for step in range(PER_MARKER):
        if PER_MARKER * (lanes - 1) + step == count:  # the last group is over
            end, at, stop = int(at[-1]), at[:-1], stop[:-1]
        if (at > np.minimum(stop, len(names) - 1) - 1).any():
            return None
        first[step, : len(at)], length[step, : len(at)] = _step(names, at)
        at = first[step, : len(at)] + length[step, : len(at)]
        if not length[step, : len(at)].all():
            return None
    if len(at) == lanes:
        end, at, stop = int(at[-1]), at[:-1], stop[:-1]
    if (at != stop).any() or end > len(names):
        return None
    return first.T.reshape(-1)[:count], length.T.reshape(-1)[:count], end
