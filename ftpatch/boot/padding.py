# SPDX-License-Identifier: MIT
"""Room inside a kernel: padding of its text for code, padding of its data for a word.

Text: between _stext and _etext, which is mapped and executable from the first instruction on and
never freed (free_initmem and the gap after _etext are outside). Data, writable from the first
instruction to the last: the end of a page that holds a few words (NOSAVE_DATA in
include/asm-generic/vmlinux.lds.h); for a ring, else a page between two sections, of which the
second is aligned to more (ppc64le's first stack); for a word, else between two objects of section
.data of which the second is aligned to a cache line, in the gap the linker left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.boot import Slots
from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.columns import addresses
from ftpatch.elf.headers import Section
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites

__all__ = ["MARGIN", "Room", "find_ring", "find_room", "find_spare", "find_word", "lay_at"]

MARGIN = 64
"""Bytes left untouched on both sides of the code: a function in assembly may end in zeros, and has
no size."""
LINE = 64
"""Bytes of a cache line."""
PAGE = 4096
PIECE = 32
"""Size of one Change (bytes)."""
WORD = 8
"""Bytes needed for the word: a counter, and four more bytes for the tracer."""
NOSAVE, NOSAVE_SECTION = ("__nosave_begin", "__nosave_end"), ".data_nosave"
UNSIZED = 256
"""Assumed size of an object in NOSAVE if nothing tells (bytes)."""
TEXT = ("_stext", "_etext")
INIT = ("__init_begin", "__init_end")
WRITTEN = ("_sdata", "_edata")


@dataclass(frozen=True)
class Room:
    """Room for code: its address, its place in the file (``offset``), and Changes of the headers
    that have to know of it (``grown``)."""

    at: int
    offset: int
    grown: Changes = field(default_factory=lambda: Changes.concat([]))

    def lay(self, sites: Sites, code: bytes, behind: int = 0) -> Changes:
        """Lay ``code`` so many bytes behind its start."""
        return _lay(sites, self.offset + behind, code)


def find_room(sites: Sites, pads: bytes, size: int) -> Room:
    """Find room for ``size`` bytes of code in the largest run of ``pads`` bytes that belongs to no
    symbol. Raises SiteRefused if none is large enough."""
    elf, symbols, path = sites.image.elf, sites.image.symbols, sites.image.path
    bounds = [symbols.find(name) for name in TEXT]
    if bounds[0] is None or bounds[1] is None or bounds[0] >= bounds[1]:
        reason = "no symbols for the start and end of its text"
        raise SiteRefused(path, reason, "use a vmlinux with symbols")
    low = bounds[0]
    within = [s for s in elf.sections if s.address <= low < s.address + s.size]
    high = min(bounds[1], max((s.address + s.size for s in within), default=bounds[1]))
    if not 0 < high - low < len(sites.image.data):
        raise SiteRefused(path, "its text is not contiguous")
    at = int(elf.offset_of(addresses(low), executable=True)[0])
    last = int(elf.offset_of(addresses(high - 1), executable=True)[0])
    if at < 0 or last - at != high - 1 - low:
        raise SiteRefused(path, "its text is not contiguous")
    raw = sites.image.data[at : last + 1]
    start, end = _runs(np.isin(raw, np.frombuffer(pads, np.uint8)), MARGIN)
    start, end = start + np.uint64(low), end + np.uint64(low)
    # A symbol ends a run; what precedes it may belong to one that is larger than it seems.
    owned_from, owned_to = _owned(symbols)
    named = np.sort(np.concatenate([symbols.value[_defined(symbols)], sites.table_before.value]))
    best, most = 0, 0
    for lo, hi in zip(start.tolist(), end.tolist(), strict=True):
        first, stop = np.searchsorted(named, addresses(lo, hi))
        cuts = [lo, *named[first:stop].tolist(), hi]
        for here, there in pairwise(cuts):
            before = int(np.searchsorted(owned_from, np.uint64(here), side="right")) - 1
            free = max(here, int(owned_to[before])) if before >= 0 else here
            if there - free > most:
                best, most = free, there - free
    best = -(-(best + MARGIN) // MARGIN) * MARGIN
    if size + 3 * MARGIN > most:
        raise SiteRefused(
            path,
            f"the tracer takes {size} bytes and {3 * MARGIN} around it, but the largest unowned "
            f"padding in its text has {most}",
        )
    return Room(best, at + best - low)


def find_ring(sites: Sites) -> int:
    """Find room for the word and the ring below it that the reader shares; 0 if there is none."""
    return _in_nosave(sites, Slots.RING) or _between_sections(sites) or 0


def find_spare(sites: Sites, size: int) -> int:
    """Find ``size`` bytes that are written while the kernel runs, below the ring if there is room
    for one. Raises SiteRefused."""
    ring = Slots.RING if find_ring(sites) else 0
    found = _in_nosave(sites, ring + size)
    if found is None:
        reason = f"its data has no {size} bytes of padding for probes of returns and of memory"
        raise SiteRefused(sites.image.path, reason, "use fewer of them, or a lower maxactive (rN:)")
    return found - ring - size


def find_word(sites: Sites) -> int:
    """Find room for eight bytes that are written while the kernel runs. Raises SiteRefused if the
    data has no padding."""
    found = _in_nosave(sites)
    if found is None:
        found = _between_objects(sites)
    if found is None:
        reason = f"no padding in its data has room for {WORD} bytes of tracer data"
        hint = "" if sites.image.symbols.size.any() else "use a vmlinux with symbols"
        raise SiteRefused(sites.image.path, reason, hint)
    return found


def _in_nosave(sites: Sites, below: int = 0) -> int | None:
    """The last line of what hibernation does not save, with so many bytes ``below`` it: it is
    page-aligned, and holds a few words at its start."""
    elf, symbols = sites.image.elf, sites.image.symbols
    low, high = (symbols.find(name) or 0 for name in NOSAVE)
    section = elf.section(NOSAVE_SECTION)
    if section is not None and not low:
        low, high = section.address, section.address + section.size
    if not low < high or low % PAGE or high % PAGE:
        return None
    at = addresses(high - LINE - below)
    held, there = elf.gather(elf.offset_of(at), below + LINE)
    named = _defined(symbols) & (symbols.value >= low) & (symbols.value < high)
    ends = symbols.value[named] + np.maximum(symbols.size[named], np.uint64(UNSIZED))
    if not there.all() or held.any() or (ends > at).any():
        return None
    return high - LINE


def _between_sections(sites: Sites) -> int | None:
    """The last line of a page of the data that no section and no symbol has."""
    elf, symbols = sites.image.elf, sites.image.symbols
    low, high = (symbols.find(name) or 0 for name in WRITTEN)
    within = [s for s in elf.sections if low <= s.address < high and s.flags & Section.SHF_WRITE]
    within = sorted((s for s in within if s.size), key=lambda section: section.address)
    named = symbols.value[_defined(symbols)]
    for one, other in pairwise(within):
        at = -(-(one.address + one.size) // PAGE) * PAGE
        if at + PAGE > other.address or ((named >= at) & (named < at + PAGE)).any():
            continue
        held, there = elf.gather(elf.offset_of(addresses(at)), PAGE)
        if there.all() and not held.any():
            return at + PAGE - LINE
    return None


def _between_objects(sites: Sites) -> int | None:
    elf, symbols = sites.image.elf, sites.image.symbols
    data = elf.section(".data")
    init = [symbols.find(name) or 0 for name in INIT]
    if data is None:
        return None
    low, high = np.uint64(data.address), np.uint64(data.address + data.size)
    inside = _defined(symbols) & (symbols.value >= low) & (symbols.value < high)
    named = np.unique(symbols.value[inside])
    owned_from, owned_to = _owned(symbols)
    if len(named) < 2 or not len(owned_from):
        return None
    begins = named[1:]
    before = np.maximum(np.searchsorted(owned_from, begins, side="left") - 1, 0)
    ends = owned_to[before] + np.uint64(WORD - 1) & np.uint64(~(WORD - 1) % (1 << 64))
    gap = (begins - ends).astype(np.int64)
    fits = (begins % np.uint64(LINE) == 0) & (gap >= WORD) & (gap < LINE) & (ends > named[:-1])
    fits &= (ends < np.uint64(init[0])) | (ends >= np.uint64(init[1]))
    held, there = elf.gather(elf.offset_of(ends), LINE)
    beyond = np.arange(LINE) >= gap[:, None]
    fits &= there & ((held == 0) | beyond).all(axis=1)
    relocations = sites.image.relocations
    sizes = np.full(len(relocations.place), elf.word)
    fits &= relocations.touch(ends, np.maximum(gap, 0), sizes) == 0
    return int(ends[fits][0]) if fits.any() else None


def lay_at(sites: Sites, at: int, code: bytes) -> Changes:
    """Change the bytes at the address ``at`` to ``code``."""
    return _lay(sites, int(sites.image.elf.offset_of(addresses(at))[0]), code)


def _lay(sites: Sites, at: int, code: bytes) -> Changes:
    """Change the bytes at the file offset ``at`` to ``code``, in short Changes, since those of all
    sites are stored in columns as wide as the widest."""
    start = np.arange(0, len(code), PIECE)
    width = np.minimum(len(code) - start, PIECE).astype(np.uint16)
    new = np.zeros((len(start), min(PIECE, len(code))), np.uint8)
    inside = np.arange(new.shape[1]) < width[:, None]
    new[inside] = np.frombuffer(code, np.uint8)
    offset = at + start.astype(np.int64)
    old, _ = sites.image.elf.gather(offset, new.shape[1])
    return Changes.of(Kind.PADDING, offset, np.where(inside, old, 0), new, NO_OWNER, width)


def _defined(symbols: Symbols) -> NDArray[np.bool_]:
    return np.asarray(symbols.section != Symbols.SHN_UNDEF)


def _owned(symbols: Symbols) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Starts of symbols with a size, ascending, and the highest end up to each one."""
    sized = _defined(symbols) & (symbols.size > 0) & (symbols.type != Symbols.STT_TLS)
    order = np.argsort(symbols.value[sized], kind="stable")
    start = symbols.value[sized][order]
    return start, np.maximum.accumulate(start + symbols.size[sized][order])


def _runs(mask: NDArray[np.bool_], least: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Starts and ends of runs of at least ``least``, uint64[m]."""
    edge = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    start, end = edge[::2], edge[1::2]
    long = end - start >= least
    return start[long].astype(np.uint64), end[long].astype(np.uint64)
