# SPDX-License-Identifier: MIT
"""The table of a kernel without symbols or sections that name it, found by its contents.

In a linked kernel the table is aligned, so only whole words count: those that are addresses of
text, in the file or, where the loader fills them, in the addends of relocations. Between them may
be nulls, and they need not be sorted.

    ... | 0 | 0 | site | site | 0 | site | site | 7 ...
          |       `--------- the run ---------'
          `- nulls that scripts/sorttable.c moved to the front: known by their relocations
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.core.columns import addresses
from ftpatch.elf.headers import Segment
from ftpatch.elf.relocations import Form
from ftpatch.ftrace.find_table import not_again, numbered_functions, sites_among
from ftpatch.ftrace.table import NAMES, Span
from ftpatch.image import Image

__all__ = ["find_kernel_table"]

MIN_SHARE = 0.8
"""Share of a run's records that must be sites."""
MAX_RUNS = 16
"""Maximum number of runs to try, those with most pointers first."""
NULLS = 1024
"""Consecutive null words that a run may contain."""


@dataclass(frozen=True)
class _Pointers:
    """n words that are addresses of text, by place: ``slot`` and ``value`` uint64[n]; ``run``
    intp[n]: equal for neighbours with only nulls between them."""

    slot: NDArray[np.uint64]
    value: NDArray[np.uint64]
    run: NDArray[np.intp]


def find_kernel_table(image: Image, arch: Arch) -> Span | None:
    """The span of the table, without nulls at its ends that have no relocation; None if there is no
    table."""
    if not len(image.elf.loads) or not len(image.elf.text):
        return None
    pointers = _pointers(image, arch)
    if not len(pointers.slot):
        return None
    count = np.bincount(pointers.run)
    best: tuple[int, int, int] | None = None
    for run in np.argsort(count, kind="stable")[-MAX_RUNS:].tolist():
        first = int(np.searchsorted(pointers.run, run))
        rows = slice(first, first + int(count[run]))
        for pad in (False, True):
            good, ip = sites_among(image, arch, pointers.value[rows], pad)
            found = _trim(pointers.slot[rows], good, ip, arch.apart)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
    if best is None:
        return None
    _, start, stop = best
    start = _nulls_before(image, arch, start)
    offset = int(image.elf.offset_of(addresses(start))[0])
    return Span(NAMES[0], ((start, offset, stop + image.elf.word - start),))


def _pointers(image: Image, arch: Arch) -> _Pointers:
    word, elf = image.elf.word, image.elf
    low, high = int(elf.text[:, 0].min()), int(elf.text.sum(axis=1).max())
    relocations = image.relocations
    rela = np.flatnonzero((relocations.form == Form.RELA) & (relocations.type == arch.relative))
    slots, values, runs, last = [], [], [], 0
    for segment in elf.skeleton.segments:
        if segment.type != Segment.PT_LOAD:
            continue
        skip = -segment.address % word
        count = max(segment.size - skip, 0) // word
        raw = elf.contents(segment.offset + skip, count * word, "segment")
        value = raw.view(elf.order.kind(f"u{word}"))
        start = np.uint64(segment.address + skip)
        moved = relocations.place[rela] - start
        inside = (moved < np.uint64(count * word)) & (moved % np.uint64(word) == 0)
        if inside.any():  # what the loader will write
            value = value.copy()
            index = (moved[inside] // np.uint64(word)).astype(np.intp)
            value[index] = relocations.addend[rela[inside]].view(np.uint64)
        code = value - value.dtype.type(low) < value.dtype.type(high - low)
        at = np.flatnonzero(code)
        # A run ends at any other word, or after many nulls.
        others = np.cumsum((value != 0) & ~code, dtype=np.int32)[at]
        breaks = (np.diff(others, prepend=0) != 0) | (np.diff(at, prepend=-1) > NULLS)
        runs.append(last + np.cumsum(breaks))
        last = int(runs[-1][-1]) + 1 if len(at) else last
        slots.append(start + at.astype(np.uint64) * np.uint64(word))
        values.append(value[at].astype(np.uint64))
    slot, value, run = (np.concatenate(part) for part in (slots, values, runs))
    exact = elf.offset_of(value, executable=True) >= 0
    return _Pointers(slot[exact], value[exact], run[exact])


def _trim(
    slot: NDArray[np.uint64], good: NDArray[np.bool_], ip: NDArray[np.uint64], apart: int
) -> tuple[int, int, int] | None:
    """(distinct sites, first slot, last slot) of a run, trimmed of pointers at either end to
    functions that it already contains."""
    rows = np.flatnonzero(good)
    if not len(rows):
        return None
    which = numbered_functions(ip[rows], apart)
    low = int(not_again(which).argmax())
    high = len(rows) - int(not_again(which[low:][::-1]).argmax())
    if MIN_SHARE * (rows[high - 1] - rows[low] + 1) > high - low:
        return None
    return len(np.unique(which[low:high])), int(slot[rows[low]]), int(slot[rows[high - 1]])


def _nulls_before(image: Image, arch: Arch, start: int) -> int:
    """Extend the table to nulls before its first record: a slot is relocated, null or
    not (the link editor wrote the relocation before scripts/sorttable.c nulled the record)."""
    word, relocations = image.elf.word, image.relocations
    if not len(relocations.form):
        return start
    reach = np.uint64(start) - np.uint64(word) * np.arange(1, 1 << 16, dtype=np.uint64)
    row = relocations.at(reach, (arch.relative,))
    relr = relocations.form[row] == Form.RELR
    raw, there = image.elf.gather(image.elf.offset_of(reach), word)
    own = image.elf.order.unsigned(raw, word)
    held = np.where(relr, own, relocations.addend[row].view(np.uint64))
    null = (row >= 0) & there & (held == 0)
    return start - word * int((~null).argmax())
