# SPDX-License-Identifier: MIT
"""Room behind a kernel's text, where its mapping goes on to the next large page.

    .text     what is mapped with it | the rest of its last large page | .init.text
    _stext    _etext                                                     __init_begin
    | the file: the same             | zeros that no section has        | the same

There the kernel's own tables map what follows the text as they map the text, and what it frees
begins at __init_begin only. riscv64 has nothing that is mapped with it, ppc64le all that is only
read. The last section and, if it ends with that, its segment grow by what is laid there, so that
whatever copies either has it; an Image has no headers, and its bytes are there already.
"""

from __future__ import annotations

import numpy as np

from ftpatch.boot.padding import MARGIN, Room
from ftpatch.core.changes import Changes
from ftpatch.core.columns import addresses
from ftpatch.elf.headers import Section, Segment
from ftpatch.elf.sections import Headers, Tail
from ftpatch.elf.segments import ProgramHeaders
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites

__all__ = ["find_room_behind"]

END = "_etext"


def find_room_behind(sites: Sites, limit: str, size: int) -> Room:
    """Find room for ``size`` bytes of code between the end of the text and the symbol ``limit``.
    Raises SiteRefused if there is none."""
    image, path = sites.image, sites.image.path
    end, stop = (image.symbols.find(name) or 0 for name in (END, limit))
    if not 0 < end < stop:
        reason = "no symbols for the end of its text and what follows"
        raise SiteRefused(path, reason, "use a vmlinux with symbols")
    end = max([end, *(s.address + s.size for s in _held(sites) if end <= s.address < stop)])
    at = -(-(end + MARGIN) // MARGIN) * MARGIN
    need = at + size + MARGIN - end
    free = min(stop, *_above(sites, end)) - end
    (before,) = image.elf.offset_of(addresses(end - 1)).tolist()
    if before < 0 or need > min(free, _empty(sites, before + 1, need)):
        raise SiteRefused(
            path,
            f"the tracer takes {size} bytes and {2 * MARGIN} around it, but behind its text up to "
            f"{limit} there are {free}, or they are not empty",
        )
    grown = _grown(sites, end, at + size - end) if image.elf.has_header else Changes.concat([])
    return Room(at, before + 1 + at - end, grown)


def _above(sites: Sites, end: int) -> list[int]:
    """Addresses from ``end`` on at which something else begins."""
    elf = sites.image.elf
    loads = [s.address for s in elf.skeleton.segments if s.type == Segment.PT_LOAD]
    return [at for at in (*loads, *(s.address for s in _held(sites))) if at >= end]


def _held(sites: Sites) -> list[Section]:
    """The sections that are in memory."""
    return [s for s in sites.image.elf.sections if s.flags & Section.SHF_ALLOC and s.size]


def _empty(sites: Sites, start: int, most: int) -> int:
    """Bytes of the file from ``start`` on, up to ``most``, that are zeros and that no section,
    segment or table of headers has."""
    elf = sites.image.elf
    begins = [start + most, len(elf.data)]
    if elf.has_header:
        begins += [s.offset for s in elf.sections if s.type != Section.SHT_NOBITS and s.size]
        begins += [s.offset for s in elf.skeleton.segments if s.size]
        begins.append(elf.skeleton.section_headers)
    stop = min(begin for begin in begins if begin >= start)
    (held,) = np.nonzero(elf.data[start:stop])
    return int(held[0]) if len(held) else stop - start


def _grown(sites: Sites, end: int, more: int) -> Changes:
    """Let the section and the segment that end at the address ``end`` have so many bytes more, the
    segment if it does not have them. Raises SiteRefused if nothing ends there."""
    elf = sites.image.elf
    headers, segments = Headers(elf, Tail(len(elf.data))), ProgramHeaders(elf)
    named = [s for s in _held(sites) if s.address + s.size == end]
    rows = segments.rows
    loaded = (rows["type"] == Segment.PT_LOAD) & (rows["vaddr"] < end)
    last = loaded & (rows["vaddr"] + rows["memsz"] == end) & (rows["filesz"] == rows["memsz"])
    whole = loaded & (rows["vaddr"] + rows["filesz"] >= end + more)
    if len(named) != 1 or last.sum() + whole.sum() != 1:
        raise SiteRefused(sites.image.path, f"no section and segment end with its text, at {END}")
    headers.resize(named[0].index, named[0].size + more)
    for name in ("filesz", "memsz"):
        rows[name][last] += np.uint64(more)
    return Changes.concat([headers.changes(), segments.in_place()])
