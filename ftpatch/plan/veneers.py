"""Where a branch cannot reach: a veneer within its reach, in padding of the text.

A place for one is a run of NOPs or zeros inside an executable section, behind the end of one symbol
and before the next, that no site touches. Every veneer is a Change of padding: the file does not
grow, and nothing moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.changes import NO_OWNER, Changes, Kind
from ftpatch.errors import SiteRefused
from ftpatch.image.symbols import Symbols
from ftpatch.sites import Sites

__all__ = ["lay_veneers"]

SCAN = 64
"""How many bytes from the end of a symbol on are looked at."""


def lay_veneers(
    sites: Sites, mask: NDArray[np.bool_], addr: int
) -> tuple[NDArray[np.uint64], Changes]:
    """Where the sites in ``mask`` branch to, uint64[n], so that they end at ``addr``, and the
    Changes that lay the veneers. Sites that reach ``addr`` branch to it.

    Raises SiteRefused where a site neither reaches ``addr`` nor a place for a veneer to it.
    """
    arch = sites.arch
    via = np.full(len(sites), addr, np.uint64)
    far = mask & ~arch.reachable(sites.ip, via)
    if not far.any():
        return via, Changes.concat([])
    places = _places(sites) if arch.veneer_size else np.empty(0, np.uint64)
    laid = [
        at
        for at, final in zip(sites.targets.addr.tolist(), sites.targets.final.tolist(), strict=True)
        if final == addr and at != addr
    ]
    parts: list[Changes] = []
    while far.any():
        ip = sites.ip[far]
        known = [at for at in laid if arch.reachable(ip, np.full(len(ip), at, np.uint64)).any()]
        if known:
            at = known[0]
        else:
            reached = arch.reachable(np.full(len(places), ip[0]), places)
            fits = [int(at) for at in places[reached] if arch.veneer(int(at), addr)]
            if not fits:
                raise SiteRefused(sites.image.path, _refusal(sites, int(ip[0]), addr))
            at = fits[0]
            parts.append(_lay(sites, at, addr))
            places = places[places != at]
        laid.append(at)
        reaches = far & arch.reachable(sites.ip, np.full(len(sites), at, np.uint64))
        via[reaches] = at
        far &= ~reaches
    return via, Changes.concat(parts)


def _refusal(sites: Sites, ip: int, addr: int) -> str:
    size = sites.arch.veneer_size
    what = f"a branch at {ip:#x} cannot reach {addr:#x}"
    if not size:
        return f"{what}, and {sites.arch.name} has no veneer"
    return f"{what}, and no {size} bytes of padding for a veneer lie within its reach"


def _places(sites: Sites) -> NDArray[np.uint64]:
    """Addresses with room for one veneer each, uint64[m]; none where no symbol bounds the gaps."""
    elf, symbols, size = sites.image.elf, sites.image.symbols, sites.arch.veneer_size
    inside = (symbols.section != Symbols.SHN_UNDEF) & (
        elf.offset_of(symbols.value, executable=True) >= 0
    )
    named = symbols.value[inside]
    sized = inside & (symbols.size > 0)
    end = np.unique(symbols.value[sized] + symbols.size[sized])
    align = np.uint64(sites.arch.align)
    end = (end + align - np.uint64(1)) // align * align
    # What lies between an end and the next symbol must not be inside another, larger symbol.
    order = np.argsort(symbols.value[sized])
    start = symbols.value[sized][order]
    reach = np.maximum.accumulate(start + symbols.size[sized][order])
    before = np.searchsorted(start, end, side="right") - 1
    free = (before >= 0) & (reach[np.maximum(before, 0)] <= end)
    end = end[free]
    bounds = np.sort(np.concatenate([named, sites.ip - np.uint64(sites.lead)]))
    bounds = np.append(bounds, np.uint64(0xFFFF_FFFF_FFFF_FFFF))
    room = bounds[np.searchsorted(bounds, end)] - end
    code, there = elf.gather(elf.offset_of(end, executable=True), SCAN)
    last = elf.offset_of(end + np.uint64(size - 1), executable=True)
    # The body of an overridden weak function has no symbol either: a gap that is padding only at
    # its start is none.
    length = np.minimum(room, SCAN).astype(np.int64)
    zeros = np.minimum.accumulate(code == 0, axis=1).sum(axis=1)
    padding = np.maximum(sites.arch.prefix(code), zeros) >= length
    return np.asarray(end[(room >= size) & there & (last >= 0) & padding])


def _lay(sites: Sites, at: int, addr: int) -> Changes:
    offset = sites.image.elf.offset_of(np.array([at], np.uint64))
    old, _ = sites.image.elf.gather(offset, sites.arch.veneer_size)
    new = np.frombuffer(sites.arch.veneer(at, addr), np.uint8).reshape(1, -1)
    return Changes.of(Kind.PADDING, offset, old, new, NO_OWNER)
