# SPDX-License-Identifier: MIT
"""The dynamic relocations of an image without headers, located by their content.

    .rela.dyn  | place | R_*_RELATIVE | addend |     place and addend are addresses of the image
               | 0     | 0            | 0      |     R_*_NONE: thousands, that the linker left
               | place | 0            | addend |     the same: that of a dropped record
               | place | another type | addend |
    .relr.dyn  | address | bitmap (odd) ... | address | bitmap ...

Both are words of the Image, which the kernel reads before it does anything else
(arch/arm64/kernel/pi/relocate.c, arch/riscv/mm/init.c).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.relocations import Form

__all__ = ["find_relocations"]

LEAST = 4
"""Minimum run of entries that makes a table."""
GOOD = 0.9
"""Minimum share of the relocated places that must hold a valid value."""
MAX_RUNS, MAX_TRIES = 256, 8
"""Number of the longest runs to examine."""
PACKED = 16
"""Maximum share of an image that a table of bitmaps takes; in a kernel it is a 300th."""
ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)
"""Number of bits set in each byte."""
TYPES, SYMBOLS = 1 << 12, 1 << 16
"""All relocation types are below, and so many symbols no kernel's relocations name."""


def find_relocations(
    data: NDArray[np.uint8], base: int, memory: int, relative: int
) -> list[tuple[int, int, int]]:
    """Find (form, file offset, size in bytes) of the tables in ``data`` (uint8[size]), which is
    linked at ``base`` and takes ``memory`` bytes; ``relative`` is the machine's R_*_RELATIVE.

    R_*_NONE at the ends of a table cannot be told from padding and is left out.
    """
    image = _Words(data, base, memory)
    rela = _find_rela(image, relative)
    relr = _find_relr(image, rela)
    return [
        (form, 8 * start, 8 * (stop - start))
        for form, (start, stop) in ((Form.RELA, rela), (Form.RELR, relr))
        if stop > start
    ]


class _Words:
    """The image as words: ``word`` uint64[n], and ``inside`` bool[n], which of them are its
    addresses."""

    def __init__(self, data: NDArray[np.uint8], base: int, memory: int) -> None:
        self.word: NDArray[np.uint64] = data[: len(data) // 8 * 8].view("<u8")
        self.base, self.memory = np.uint64(base), np.uint64(memory)
        self.inside = self.holds(self.word)

    def holds(self, address: NDArray[np.uint64]) -> NDArray[np.bool_]:
        return np.asarray(address - self.base < self.memory)

    def at(self, place: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Read the word at each address; also return whether the file has one there."""
        index = (place - self.base) // np.uint64(8)
        there = (index < len(self.word)) & (place % np.uint64(8) == 0)
        return self.word[np.where(there, index, 0).astype(np.intp)], there


def _find_rela(image: _Words, relative: int) -> tuple[int, int]:
    """First word of the table, and the one after it."""
    word = image.word
    starts = np.flatnonzero((word[1:-1] == relative) & image.inside[:-2] & image.inside[2:])
    if not len(starts):
        return 0, 0
    phase = int(np.bincount(starts % 3).argmax())
    table = word[phase : phase + (len(word) - phase) // 3 * 3].reshape(-1, 3)
    place, info, addend = (np.ascontiguousarray(column) for column in table.T)
    zero = (place | info | addend) == 0
    symbol, kind = info >> np.uint64(32), info & np.uint64(0xFFFF_FFFF)
    known = (symbol > 0) & (symbol < SYMBOLS) & (kind > 0) & (kind < TYPES)
    valid = (known | (info == relative)) & image.holds(place)
    sure = valid & (info == relative) & image.holds(addend)
    none = zero | ((info == 0) & image.holds(place) & image.holds(addend))
    best = (0, 0)
    for low, high in _runs(valid | none, sure):
        rows = low + np.flatnonzero(sure[low:high])
        held, there = image.at(place[rows])
        good = there & ((held == 0) | (held == addend[rows]))
        if len(rows) < LEAST or good.mean() < GOOD or len(rows) <= best[1] - best[0]:
            continue
        ends = low + np.flatnonzero(valid[low:high])
        best = int(ends[0]), int(ends[-1]) + 1
    return phase + 3 * best[0], phase + 3 * best[1]


def _find_relr(image: _Words, rela: tuple[int, int]) -> tuple[int, int]:
    """The same for the table of bitmaps, which is outside the other one."""
    word = image.word
    odd = (word & np.uint64(1)).astype(bool)
    head = image.inside & ~odd
    valid = odd | head
    valid[slice(*rela)] = False
    best, most = (0, 0), LEAST - 1
    for low, high in _runs(valid, odd):
        start, stop = _ascending(word[low:high], head[low:high])
        table = word[low + start : low + stop]
        bits = ONES[table.view(np.uint8)].sum(dtype=np.int64)
        if len(table) > len(word) // PACKED or bits > len(word):
            continue
        place = _places(table, head[low + start : low + stop])
        if len(place) <= most:
            continue
        held, there = image.at(place)
        if (there & ((held == 0) | image.holds(held))).mean() >= GOOD:
            best, most = (low + start, low + stop), len(place)
    return best


def _ascending(word: NDArray[np.uint64], head: NDArray[np.bool_]) -> tuple[int, int]:
    """The longest part that begins with an address, and in which each address is beyond everything
    relocated before."""
    at = np.flatnonzero(head)
    if not len(at):
        return 0, 0
    bitmaps = np.diff(at, append=len(word)) - 1
    covered = word[at] + (8 + 8 * 63 * bitmaps).astype(np.uint64)
    # An address's last bitmap need not be full.
    cut = np.flatnonzero(
        word[at[1:]] <= covered[:-1] - 8 * 63 * (bitmaps[:-1] > 0).astype(np.uint64)
    )
    first = np.append(0, cut + 1)
    begin, end = at[first], np.append(at[first[1:]], len(word))
    longest = int((end - begin).argmax())
    return int(begin[longest]), int(end[longest])


def _places(word: NDArray[np.uint64], head: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Expand a table of bitmaps to the addresses it relocates: each address and, for each bit of a
    bitmap but the lowest, one of the 63 words after what came before."""
    index = np.arange(len(word))
    last = np.maximum.accumulate(np.where(head, index, 0))
    base = word[last] + (8 + 8 * 63 * (index - last - 1)).astype(np.uint64)
    bits = np.unpackbits(word[~head].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    row, bit = np.nonzero(bits[:, 1:])
    return np.concatenate([word[head], base[~head][row] + (8 * bit).astype(np.uint64)])


def _runs(valid: NDArray[np.bool_], counted: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """(start, stop) of stretches that are valid throughout, those first in which most counts."""
    gap = np.concatenate([[-1], np.flatnonzero(~valid), [len(valid)]])
    length = np.diff(gap) - 1
    long = np.flatnonzero(length >= LEAST)
    long = long[np.argsort(-length[long], kind="stable")[:MAX_RUNS]]
    runs = [(int(gap[i]) + 1, int(gap[i + 1])) for i in long]
    share = {run: int(np.count_nonzero(counted[slice(*run)])) for run in runs}
    return sorted((run for run in runs if share[run]), key=lambda run: -share[run])[:MAX_TRIES]
