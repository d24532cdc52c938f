# SPDX-License-Identifier: MIT
"""Injecting a stub after everything the program has, in the file and in memory.

    file     | program ...            | journals | zeros | Phdr... | text | data |
    memory   | program ... | .bss ... |                  | Phdr... | text | data |
                                                         ^ start

start has the same distance from its file offset as the first segment.

That distance matters to Linux before 5.18, which computes AT_PHDR as that of the first segment plus
e_phoff (commit 0da1d5002745, "fs/binfmt_elf: Fix AT_PHDR for unusual ELF files").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import ProgramHeaders
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.hop_pages import HopPages
from ftpatch.inject.search_table import search_table
from ftpatch.inject.stub import Stub

__all__ = ["Injected", "inject", "start_of"]

HOLE = 64 << 20
"""Maximum zero padding between the end of the file and the stub (bytes)."""
FAR = 1 << 56
"""An address above every user address space."""


@dataclass(frozen=True, kw_only=True)
class Injected:
    """An injected stub: ``changes`` to the file's headers, ``tail`` to append to it, ``shift``: the
    distance of the stub from its link address."""

    changes: Changes
    tail: bytes
    shift: int


def start_of(image: Image, page: int) -> tuple[int, int]:
    """Find the file offset and the link address at which a stub begins. Raises InputError for a
    file without segments."""
    loads = ProgramHeaders(image.elf).loads
    if not len(loads):
        raise InputError(image.path, "no segments")
    first = loads[np.argmin(loads["vaddr"])]
    delta = int(first["vaddr"]) - int(first["offset"])
    top = max(int(row["vaddr"]) + int(row["memsz"]) for row in loads)
    size = len(image.data)
    offset = _aligned(max(size, top - delta), page)
    if delta % page or offset - size > HOLE:
        return _aligned(size, page), _aligned(top, page)
    return offset, offset + delta


def inject(
    image: Image,
    stub: Stub,
    *,
    page: int,
    entry: int | None,
    fill: Callable[[int], dict[int, bytes]],
    hops: HopPages | None = None,
    dynamic: tuple[int, int] | None = None,
) -> Injected:
    """Inject a stub into a program. ``page``: the largest page size it may run with (bytes);
    ``entry``: the address in the stub at which the program starts, None to keep its own.

    ``fill`` takes the shift and returns contents for some of the stub's linked addresses; ``hops``
    go where they have to; ``dynamic``: linked address and bytes of a dynamic table in place of the
    program's.

    Raises InputError if the file has no room for it.
    """
    headers = ProgramHeaders(image.elf)
    size = len(image.data)
    offset, start = start_of(image, page)
    apart = hops.segments if hops else []
    # Headers and table precede the stub, whose parts keep their distances.
    text = stub.parts[0]
    searched = search_table(image.elf, stub, hops.frames if hops else ())
    if searched.kind:
        _point_at(headers, searched.kind, 0, 0, 0)
    count = len(headers.rows) + len(stub.parts) + len(apart)
    table = _aligned(count * headers.rows.itemsize, 64)
    room = table + searched.size
    if not 0 <= start <= start + room < FAR:
        raise InputError(image.path, "no room for a stub in its address space")
    shift = _aligned(start + room, page) - text.address  # linked at the start of a page
    unwind = searched.pack(shift, start + table)
    if searched.kind:
        _point_at(headers, searched.kind, table + offset, start + table, len(unwind))
    if dynamic:
        at = dynamic[0] + shift
        _point_at(headers, Segment.PT_DYNAMIC, at - start + offset, at, dynamic[1])
    filled = fill(shift)
    pieces = [(start + table, unwind)]  # (address, bytes)
    for number, part in enumerate(stub.parts):
        data = bytearray(part.data)
        for address, value in filled.items():
            at = address - part.address
            if 0 <= at < len(data):
                data[at : at + len(value)] = value
        pieces.append((part.address + shift, bytes(data)))
        low = part.address + shift if number else start
        before = part.address + shift - low
        headers.add(
            Segment.PT_LOAD,
            flags=part.flags,
            offset=offset + low - start,
            vaddr=low,
            paddr=low,
            filesz=before + len(data),
            memsz=before + part.size,
            align=page,
        )
    end = max(address + len(held) for address, held in pieces)
    behind = _aligned(end, page)
    above = max(part.address + part.size for part in stub.parts) + shift
    for address, span, distance in apart:
        if address < above:
            raise InputError(image.path, "no room for punned jumps in its address space")
        headers.add(
            Segment.PT_LOAD,
            flags=Segment.PF_R | Segment.PF_X,
            offset=offset + behind - start + distance,
            vaddr=address,
            paddr=address,
            filesz=span,
            memsz=span,
            align=page,
        )
    if hops and apart:
        pieces.append((behind, hops.contents(shift)))
        end = behind + len(pieces[-1][1])
    pieces.append((start, headers.table(offset, start)))
    if image.elf.word == 4 and end > 0xFFFF_FFFF:
        raise InputError(image.path, "no room for a stub in its address space")
    tail = bytearray(offset - size + end - start)
    for address, held in pieces:
        at = offset - size + address - start
        tail[at : at + len(held)] = held
    begin = None if entry is None else entry + shift
    changes = Changes.concat([headers.changes(offset, begin), searched.changes(shift)])
    return Injected(changes=changes, tail=bytes(tail), shift=shift)


def _point_at(headers: ProgramHeaders, kind: int, offset: int, address: int, size: int) -> None:
    """Point the header of this kind at a new table."""
    own = headers.rows["type"] == kind
    if not own.any():
        headers.add(kind, flags=Segment.PF_R, align=4)
        own = headers.rows["type"] == kind
    for name, value in (
        ("offset", offset),
        ("vaddr", address),
        ("paddr", address),
        ("filesz", size),
        ("memsz", size),
    ):
        headers.rows[name][own] = value


def _aligned(number: int, to: int) -> int:
    return (number + to - 1) // to * to
