# SPDX-License-Identifier: MIT
"""The libraries of watched variables, as bytes: four struct watched_library of
stubs/runtime/watch.h, behind the rules.

A library is known by where its dynamic table is, and by bytes of its build-id, or of its ELF
header. A program that refers to a library's variable at a fixed address has a copy of it
(R_*_COPY), and the dynamic linker binds everybody to that, the library too. What it has bound
stands in the GOT:

library   counter   -> never used                  program   counter   <- the copy
          GOT | address of the copy |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.arch import Arch, arch_of
from ftpatch.core.byte_order import ByteOrder
from ftpatch.elf.build_id import build_id_note
from ftpatch.elf.headers import Segment
from ftpatch.errors import UsageError
from ftpatch.image import Image
from ftpatch.layout import constants, pack, structure, unpack

__all__ = [
    "HOMES_SIZE",
    "LINK",
    "Home",
    "home_of",
    "pack_homes",
    "rank_of",
    "ranked",
    "slots_of",
    "unpack_homes",
]

SLOTS = constants["WATCHES"]
_HOME = structure("watched_library")
HOMES_SIZE = structure("trace_watch").itemsize
"""Bytes: as many as an entry of the other tables."""
RANK = constants["WATCH_LIBRARY"]
"""Bits of a link address; above is the number of its library, 0: the program's."""
LINK = (1 << RANK) - 1
"""Mask of a link address."""
ID = _HOME["id"].itemsize
IN_HEADER = 24
"""Offset of bytes of an ELF header that differ from file to file: e_entry, e_phoff, e_shoff."""


@dataclass(frozen=True, slots=True)
class Home:
    """The library of a variable; link addresses: of its ``dynamic`` table, of the ``place`` of the
    bytes ``id``, and of the ``slot`` that holds what it has bound the variable to, 0: it is its
    own; ``bound``: the link address of its own, with what is added to it in that slot."""

    dynamic: int
    place: int
    id: bytes
    slot: int
    bound: int


def ranked(address: int, rank: int) -> int:
    """The address of a watch whose library has a number ``rank``."""
    return address | rank << RANK


def rank_of(address: int) -> int:
    """The same number, by the address."""
    return address >> RANK


def home_of(library: Image, address: int) -> Home:
    """The home of a library's variable at a link address. Raises UsageError for one that cannot be
    told from others."""
    dynamic = library.elf.segment(Segment.PT_DYNAMIC)
    arch = arch_of(library.elf.skeleton.machine, library.elf.skeleton.elf_class)
    if dynamic is None or arch is None:
        raise UsageError(library.path, "no shared library", "name another one")
    place = build_id_note(library.elf) or _header(library)
    at = library.elf.offset_of(np.array([place], np.uint64))[0]
    held = library.elf.contents(int(at), ID, "build-id").tobytes()
    rows = slots_of(library, address, arch)
    if not rows:
        return Home(dynamic.address, place, held, 0, 0)
    relocations = library.relocations
    slot, addend = int(relocations.place[rows[0]]), int(relocations.addend[rows[0]])
    return Home(dynamic.address, place, held, slot, (address + addend) % (1 << 64))


def slots_of(library: Image, address: int, arch: Arch) -> list[int]:
    """The relocations, as rows, that have the dynamic linker write the address of the variable that
    a library has at a link address; those of the GOT come first."""
    relocations, symbols = library.relocations, library.dynamic_symbols
    names = {*symbols.names(np.flatnonzero(symbols.value == np.uint64(address)))}
    by_name = np.flatnonzero(np.isin(relocations.type, (*arch.got, arch.absolute)))
    by_name = by_name[relocations.symbol[by_name] < len(symbols)]
    found = symbols.names(relocations.symbol[by_name].astype(np.intp))
    rows = [row for row, name in zip(by_name.tolist(), found, strict=True) if name in names]
    return sorted(rows, key=lambda row: relocations.type[row] == arch.absolute)


def pack_homes(homes: Sequence[Home | None], order: ByteOrder) -> bytes:
    """Pack those of at most SLOTS watches, None for the program's."""
    out = b""
    for one in homes:
        fields = {} if one is None else {name: getattr(one, name) for name in Home.__slots__}
        out += pack("watched_library", order, **fields)
    return out.ljust(HOMES_SIZE, b"\0")


def unpack_homes(raw: bytes, order: ByteOrder) -> list[Home | None]:
    """Parse a table; as many as SLOTS, None for watches of the program."""
    at = (number * _HOME.itemsize for number in range(SLOTS))
    rows = [unpack("watched_library", order, raw, place) for place in at]
    homes = (Home(**row | {"id": bytes(row["id"]).ljust(ID, b"\0")}) for row in rows)
    return [one if one.dynamic else None for one in homes]


def _header(library: Image) -> int:
    """The link address of bytes of its ELF header. Raises UsageError where that is not in
    memory."""
    for one in library.elf.skeleton.segments:
        if one.type == Segment.PT_LOAD and not one.offset and one.size > IN_HEADER + ID:
            return one.address + IN_HEADER
    reason = "no build-id, by which it would be known when the program runs"
    raise UsageError(library.path, reason, "link it with --build-id, or use --pid")
