# SPDX-License-Identifier: MIT
"""Relocatable files (ET_REL), which have no addresses yet: a layout to refer to their contents by.

Every allocated section gets its file offset as its address, so the address of anything in the file
is its offset. Everything else gets unique addresses after that:

    | Ehdr | .text ... | .data ... |  undefined symbols, 16 apart  | .text.ftpatch | .bss ... |
    0      ^ sh_offset              ^ externals                     ^ sh_offset     ^ UNFILED

Sections that ftpatch appends are beyond all of that, so that nothing else moves for them.

A loader (kernel/module/main.c, or a link editor) will choose others; statements about a file in
terms of these hold for all of them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section, Segment, Skeleton
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError

__all__ = [
    "LAID",
    "LAID_CODE",
    "LAID_DATA",
    "NOWHERE",
    "STEP",
    "externals",
    "lay_out",
    "lay_out_symbols",
    "module_name",
]

LAID_CODE = ".text.ftpatch"
LAID_DATA = ".data.ftpatch"
LAID = (LAID_CODE, LAID_DATA)
"""Sections that ftpatch appends: their address does not determine that of undefined symbols."""
UNFILED = 1 << 40
"""First address of sections that are not in the file, however many symbols there are."""
STEP = 16
"""Bytes per undefined symbol."""
NOWHERE = 1 << 62
"""Added to addresses outside this layout: of absolute symbols, and of what is not loaded."""


def module_name(elf: Elf) -> str:
    """Read the module's name from .modinfo (``name=``, since v4.14), else from the file's name, as
    in KBUILD_MODNAME.

    Raises InputError if .modinfo is outside the file.
    """
    section = elf.section(".modinfo")
    if section is not None:
        raw = elf.contents(section.offset, section.size, ".modinfo").tobytes()
        for entry in raw.split(b"\0"):
            if entry.startswith(b"name="):
                return entry[len(b"name=") :].decode("utf-8", "backslashreplace")
    return elf.path.name.split(".")[0].replace("-", "_")


def lay_out(elf: Elf) -> Elf:
    """Lay out a relocatable file; return other files unchanged."""
    skeleton = elf.skeleton
    if skeleton.type != Skeleton.ET_REL:
        return elf
    filed = [s for s in skeleton.sections if _allocated(s) and s.type != Section.SHT_NOBITS]
    laid = [s for s in filed if s.name in LAID]
    segments = [_segment([s for s in filed if s not in laid]), _segment(laid)]
    free = UNFILED
    sections = list(skeleton.sections)
    for section in skeleton.sections:
        if _allocated(section):
            address = section.offset
            if section.type == Section.SHT_NOBITS:
                address = free
                free = _aligned(free + section.size + 1)
                if free > NOWHERE:
                    raise InputError(elf.path, f"section {section.name} of {section.size} bytes")
            sections[section.index] = section.at(address)
    return Elf(
        elf.path,
        elf.data,
        replace(
            skeleton,
            sections=tuple(sections),
            segments=tuple(segment for segment in segments if segment.size),
        ),
        elf.mapped,
    )


def externals(elf: Elf) -> int:
    """Address of the first undefined symbol, after everything that was in the file first."""
    return _aligned(max((s.address + s.size for s in elf.skeleton.segments[:1]), default=0))


def lay_out_symbols(elf: Elf, symbols: Symbols) -> Symbols:
    """The symbols at the addresses of this layout. Undefined ones count as defined elsewhere
    (``Symbols.EXTERNAL``); row n of the table is ``STEP * n`` after ``externals``."""
    start = np.array([s.address for s in elf.sections] or [0], np.uint64)
    section = symbols.section.astype(np.int64)
    inside = (section > 0) & (section < len(start))
    inside[inside] = start[section[inside]] > 0
    base = np.where(inside, start[np.where(inside, section, 0)], np.uint64(NOWHERE))
    value = symbols.value + base
    outside = (section == Symbols.SHN_UNDEF) & (symbols.name != 0)
    row = np.arange(len(symbols), dtype=np.uint64)
    place = np.uint64(externals(elf)) + np.uint64(STEP) * row
    kept = np.where(section == Symbols.EXTERNAL, np.uint16(Symbols.SHN_ABS), symbols.section)
    return replace(
        symbols,
        value=np.where(outside, place, value),
        section=np.where(outside, np.uint16(Symbols.EXTERNAL), kept),
    )


def _segment(sections: list[Section]) -> Segment:
    """One segment for all, since no other addresses exist."""
    start = min((s.offset for s in sections), default=0)
    size = max((s.offset + s.size for s in sections), default=0) - start
    return Segment(Segment.PT_LOAD, Segment.PF_X, start, start, size, size)


def _allocated(section: Section) -> bool:
    return bool(section.flags & Section.SHF_ALLOC)


def _aligned(address: int) -> int:
    return (address + STEP - 1) // STEP * STEP
