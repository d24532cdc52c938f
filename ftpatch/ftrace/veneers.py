# SPDX-License-Identifier: MIT
"""Branches out of range: a veneer within its reach, in padding of the text.

A place for one is a run of NOPs or zeros inside an executable section, behind the end of one symbol
and before the next, that no site touches. Every veneer is a Change of padding: the file does not
grow, and nothing moves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.columns import addresses
from ftpatch.core.journal import journalled
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import SiteRefused
from ftpatch.ftrace.sites import Sites

__all__ = ["lay_code", "lay_veneers"]

SCAN = 64
"""Bytes to search after the end of a symbol."""


def lay_veneers(
    sites: Sites, mask: NDArray[np.bool_], addr: int
) -> tuple[NDArray[np.uint64], Changes]:
    """Branch targets through which the sites in ``mask`` reach ``addr``, uint64[n], and the Changes
    that write the veneers. Sites within reach of ``addr`` branch to it directly.

    Raises SiteRefused where a site neither reaches ``addr`` nor a place for a veneer to it.
    """
    via = np.full(len(sites), addr, np.uint64)
    aligned = sites.ip % np.uint64(sites.arch.align) == 0  # the others are for the verifier
    far = mask & aligned & ~sites.arch.reachable(sites.branch, via)
    if not far.any():
        return via, Changes.concat([])
    need = f"a branch at {int(sites.ip[far][0]):#x} cannot reach {addr:#x}"
    if not sites.arch.veneer_size:
        raise SiteRefused(sites.image.path, f"{need}, and {sites.arch.name} has no veneer")
    return lay_code(sites, far, addr, lambda at: sites.arch.veneer(at, addr), need)


def lay_code(
    sites: Sites, mask: NDArray[np.bool_], addr: int, code: Callable[[int], bytes], need: str
) -> tuple[NDArray[np.uint64], Changes]:
    """Place ``code(at)``, which continues at ``addr`` and is empty if it cannot, within reach of
    every site in ``mask``, bool[n]. Code placed by earlier commands is reused. ``need`` says in
    errors what it is for.

    Gives where these sites branch to, uint64[n] (others: ``addr``), and the Changes. Raises
    SiteRefused where no place is within reach.
    """
    arch = sites.arch
    via = np.full(len(sites), addr, np.uint64)
    left = mask.copy()
    places = _places(sites)
    laid = [at for at in _laid_before(sites) if _holds(sites, at, code(at))]
    parts: list[Changes] = []
    while left.any():
        ip, branch = sites.ip[left], sites.branch[left]
        known = [at for at in laid if arch.reachable(branch[:1], addresses(at))[0]]
        if known:
            at = known[0]
        else:
            reached = arch.reachable(np.full(len(places), branch[0]), places)
            fits = [int(at) for at in places[reached] if code(int(at))]
            if not fits:
                raise SiteRefused(
                    sites.image.path,
                    f"{need}, and no {arch.veneer_size} bytes of unowned padding are "
                    f"within reach of {int(ip[0]):#x}",
                    "select other functions with -f",
                )
            at = fits[0]
            laid.append(at)
            parts.append(_lay(sites, at, code(at)))
            places = places[places != at]
        reaches = left & arch.reachable(sites.branch, np.full(len(sites), at, np.uint64))
        via[reaches] = at
        left &= ~reaches
    return via, Changes.concat(parts)


def _laid_before(sites: Sites) -> list[int]:
    """Addresses of code that earlier commands placed in padding."""
    laid = journalled(sites.blocks, Kind.PADDING).offset
    return [int(at) for at in sites.image.elf.address_of(laid) if at]


def _holds(sites: Sites, at: int, code: bytes) -> bool:
    offset = sites.left.elf.offset_of(addresses(at), executable=True)
    held, _ = sites.left.elf.gather(offset, len(code))
    return bool(code) and held[0].tobytes() == code


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
    # A function's literal and other pads come before it, where the record points.
    records = sites.table_before.value
    bounds = np.sort(np.concatenate([named, records, sites.ip - np.uint64(sites.lead)]))
    bounds = np.append(bounds, np.uint64(0xFFFF_FFFF_FFFF_FFFF))
    room = bounds[np.searchsorted(bounds, end)] - end
    code, there = elf.gather(elf.offset_of(end, executable=True), SCAN)
    last = elf.offset_of(end + np.uint64(size - 1), executable=True)
    # The body of an overridden weak function has no symbol either: a gap must be padding to its
    # end.
    length = np.minimum(room, SCAN).astype(np.int64)
    zeros = np.minimum.accumulate(code == 0, axis=1).sum(axis=1)
    padding = np.maximum(sites.arch.prefix(code), zeros) >= length
    return np.asarray(end[(room >= size) & there & (last >= 0) & padding])


def _lay(sites: Sites, at: int, code: bytes) -> Changes:
    offset = sites.image.elf.offset_of(addresses(at))
    old, _ = sites.image.elf.gather(offset, len(code))
    new = np.frombuffer(code, np.uint8).reshape(1, -1)
    return Changes.of(Kind.PADDING, offset, old, new, NO_OWNER)
