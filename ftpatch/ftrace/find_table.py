# SPDX-License-Identifier: MIT
"""The table of a program without section headers, found by its contents.

A table lists every instrumented function, so it is the longest run of words (or of relative
relocations) of which each is the address of a site. Pointers to functions stand elsewhere too, in
vtables and in .init_array, in shorter runs; a pointer at the edge of the run that is in the table
already belongs to such a neighbour.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Abi, Arch, State
from ftpatch.core.columns import addresses
from ftpatch.elf.headers import Segment
from ftpatch.elf.relocations import Form
from ftpatch.errors import InputError
from ftpatch.ftrace.abi import got_base
from ftpatch.ftrace.call_adjust import adjust
from ftpatch.ftrace.table import NAMES, Span
from ftpatch.image import Image

__all__ = ["find_table", "not_again", "numbered_functions", "sites_among"]

MIN_SHARE = 0.8
"""Share of a run that must be sites."""
MIN_SITES = 3
"""Minimum number of sites in a run: a single word that is the address of a call proves nothing."""
CANDIDATES = 16
"""Maximum number of runs to try."""


def find_table(image: Image, arch: Arch) -> Span | None:
    """The span of the table; None if no word is the address of a site.

    Raises InputError where two runs are equally good.
    """
    best: list[tuple[int, int, int, str]] = []
    # GNU as aligns __mcount_loc to a byte, so a table may begin anywhere.
    for shift in range(image.elf.word):
        slot, value = _candidates(image, arch, shift)
        for name, pad in zip(NAMES, (False, True), strict=True):
            good, ip = sites_among(image, arch, value, pad)
            runs = _runs(slot, good, ip, image.elf.word, arch.apart)
            best += [(distinct, start, count, name) for start, count, distinct in runs]
    if not best:
        return None
    best.sort(reverse=True)
    distinct, start, count, name = best[0]
    if len(best) > 1 and best[1][0] == distinct:
        raise InputError(
            image.path,
            f"no section or symbol locates the table, and two runs of {distinct} records look "
            f"like it: at {best[1][1]:#x} and {start:#x}",
        )
    offset = int(image.elf.offset_of(addresses(start))[0])
    return Span(name, ((start, offset, count * image.elf.word),))


def _candidates(
    image: Image, arch: Arch, shift: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Slots and values of all words, ``shift`` bytes from alignment, that are addresses of code."""
    word, elf = image.elf.word, image.elf
    relocations = image.relocations
    rela = (relocations.form == Form.RELA) & (relocations.type == arch.relative)
    rela &= relocations.place % np.uint64(word) == shift
    slots, values = [relocations.place[rela]], [relocations.addend[rela].view(np.uint64)]
    low = int(elf.text[:, 0].min(initial=0xFFFF_FFFF_FFFF_FFFF))
    size = int(elf.text.sum(axis=1).max(initial=0)) - low
    for segment in elf.skeleton.segments:
        if segment.type != Segment.PT_LOAD or size <= 0:
            continue
        skip = (shift - segment.address) % word
        count = max(segment.size - skip, 0) // word
        raw = elf.contents(segment.offset + skip, count * word, "segment")
        held = np.frombuffer(raw.tobytes(), elf.order.kind(f"u{word}"))
        # Hardly any word is an address of code: filter first.
        near = np.flatnonzero(held - held.dtype.type(low) < size)
        start = addresses(segment.address + skip)[0]
        slots.append(start + near.astype(np.uint64) * np.uint64(word))
        values.append(held[near].astype(np.uint64))
    slot, first = np.unique(np.concatenate(slots), return_index=True)  # relocations come first
    value = np.concatenate(values)[first]
    code = elf.offset_of(value, executable=True) >= 0
    return slot[code], value[code]


def sites_among(
    image: Image, arch: Arch, value: NDArray[np.uint64], pad: bool
) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    """Test which values are addresses of NOP pads, or, without ``pad``, of calls to one callee; and
    the ip of each."""
    abi = Abi(pad=pad, got_base=got_base(image))
    ip = adjust(image, arch, abi, value)
    offset = image.elf.offset_of(ip - np.uint64(arch.lead(abi)), executable=True)
    code, there = image.elf.gather(offset, arch.width)
    state, addr, _, _ = arch.decode(code, ip, abi)
    if pad:
        return np.asarray((state == State.NOP) & there), ip
    call: NDArray[np.bool_] = (state == State.CALL) & there
    if call.any():
        callee, count = np.unique(addr[call], return_counts=True)
        call &= addr == callee[count.argmax()]
    return call, ip


def _runs(
    slot: NDArray[np.uint64],
    good: NDArray[np.bool_],
    ip: NDArray[np.uint64],
    word: int,
    apart: int,
) -> list[tuple[int, int, int]]:
    """(address, records, distinct sites) of the runs of neighbouring slots with most sites.

    A few of a run may be damaged, so a run is of pointers to code, of which most are sites.
    """
    if not len(slot):
        return []
    start = np.concatenate([[0], np.flatnonzero(np.diff(slot) != word) + 1])
    count = np.diff(start, append=len(slot))
    sites = np.add.reduceat(good.astype(np.int64), start)
    runs = []
    for row in np.argsort(sites, kind="stable")[-CANDIDATES:].tolist():
        first, rows = int(start[row]), np.flatnonzero(good[start[row] : start[row] + count[row]])
        if not len(rows):
            continue
        which = numbered_functions(ip[first + rows], apart)
        # From the front, up to the first function that does not come again; then from the back.
        low = int(not_again(which).argmax())
        high = len(rows) - int(not_again(which[low:][::-1]).argmax())
        length = int(rows[high - 1] - rows[low]) + 1
        distinct = len(np.unique(which[low:high]))
        if MIN_SHARE * length <= high - low and distinct >= MIN_SITES:
            runs.append((int(slot[first + rows[low]]), length, distinct))
    return runs


def numbered_functions(ip: NDArray[np.uint64], apart: int) -> NDArray[np.intp]:
    """A number for each site, the same for those too near to belong to two functions."""
    order = np.argsort(ip, kind="stable")
    number = np.empty(len(ip), np.intp)
    number[order] = np.concatenate([[0], np.cumsum(np.diff(ip[order]) >= apart)])
    return number


def not_again(which: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Test which numbers do not occur again further on."""
    _, first = np.unique(which[::-1], return_index=True)
    last = np.zeros(len(which), bool)
    last[len(which) - 1 - first] = True
    return last
