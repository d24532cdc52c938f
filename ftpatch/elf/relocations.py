# SPDX-License-Identifier: MIT
"""Relocations: which words the loader (or the kernel itself) writes before use.

    RELA  | r_offset | r_info | r_addend |      *(r_offset) = base + r_addend
    REL   | r_offset | r_info |                 *(r_offset) += base
    RELR  | address (even) | bitmap (odd) ...   *(each place) += base

In a linked file r_offset is an address, in a relocatable one it counts from the start of the
section that sh_info names. System V ABI, chapter 4, "Relocation" and "Relative Relocation Table"
(RELR).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.columns import among
from ftpatch.elf.dynamic import Tag, dynamic_tags, offset_of_tag
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section, Skeleton
from ftpatch.errors import InputError

__all__ = ["Form", "Relocations", "read_relocations"]

MAX_RELR = 1 << 26
"""Maximum size of what RELR relocates; a vmlinux has 4 MB of it."""


class Form:
    """Form of a relocation entry."""

    NONE, REL, RELA, RELR = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Relocations:
    """n relocations.

    ``place`` uint64[n] (virtual address written to), ``type`` uint32[n] (RELR rows: 0), ``symbol``
    uint32[n] (index in .dynsym, or .symtab in a relocatable file), ``addend`` int64[n] (RELA only),
    ``form`` uint8[n], ``entry`` int64[n] (file offset of the entry, for RELR of its bitmap or
    address word), ``bit`` uint8[n] (RELR: which bit of the bitmap; 0 is the address word itself).
    """

    place: NDArray[np.uint64]
    type: NDArray[np.uint32]
    symbol: NDArray[np.uint32]
    addend: NDArray[np.int64]
    form: NDArray[np.uint8]
    entry: NDArray[np.int64]
    bit: NDArray[np.uint8]

    def at(self, place: NDArray[np.uint64], types: tuple[int, ...]) -> NDArray[np.int64]:
        """Row of the relocation of these types at each place, int64[m]; -1 if there is none. RELR
        rows are relative by nature: they match every machine's R_*_RELATIVE."""
        rows = np.flatnonzero((self.form == Form.RELR) | among(self.type, types))
        rows = rows[np.argsort(self.place[rows], kind="stable")]
        if not len(rows):
            return np.full(len(place), -1, np.int64)
        at = np.minimum(np.searchsorted(self.place[rows], place), len(rows) - 1)
        return np.where(self.place[rows][at] == place, rows[at], -1)

    def touch(
        self, address: NDArray[np.uint64], width: NDArray[np.int64], size: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Count the relocations that write to each range of ``width`` bytes at an address,
        int64[m]; each writes ``size`` bytes, int64[n], 0 for none."""
        rows = np.flatnonzero(size)
        start = np.sort(self.place[rows])
        end = np.sort(self.place[rows] + size[rows].astype(np.uint64))
        begun = np.searchsorted(start, address + width.astype(np.uint64))
        return np.asarray(begun - np.searchsorted(end, address, side="right"))


def read_relocations(elf: Elf) -> Relocations:
    """Read all relocations applied when an image is loaded: from its allocated sections or its
    dynamic table; in a relocatable file, those of its allocated sections.

    Raises InputError if a table is outside the file, or relocates something outside its section.
    """
    if elf.skeleton.type == Skeleton.ET_REL:
        parts = [
            _read_relocatable(elf, form, own)
            for form in (Form.REL, Form.RELA)
            if (own := _of_sections(elf, form))
        ]
    else:
        tables = _tables(elf)
        elf.bounded("relocation tables", (size for _, _, size in tables))
        parts = [_read(elf, form, offset, size) for form, offset, size in tables]
    columns = zip(*parts, strict=True) if parts else [[]] * 7
    kinds = (np.uint64, np.uint32, np.uint32, np.int64, np.uint8, np.int64, np.uint8)
    joined = [
        np.concatenate([np.empty(0, kind), *column])
        for kind, column in zip(kinds, columns, strict=True)
    ]
    return Relocations(*joined)


def _tables(elf: Elf) -> list[tuple[int, int, int]]:
    """(form, file offset, size) of every table; those of a linked vmlinux have no PT_DYNAMIC."""
    forms = {
        Section.SHT_REL: Form.REL,
        Section.SHT_RELA: Form.RELA,
        Section.SHT_RELR: Form.RELR,
    }
    if elf.sections:
        return [
            (forms[s.type], s.offset, s.size)
            for s in elf.sections
            if s.type in forms and s.flags & Section.SHF_ALLOC
        ]
    tags = dynamic_tags(elf)
    plt = Form.RELA if tags.get(Tag.PLTREL) == Tag.RELA else Form.REL
    return [
        (form, offset, tags.get(size, 0))
        for form, table, size in (
            (Form.REL, Tag.REL, Tag.RELSZ),
            (Form.RELA, Tag.RELA, Tag.RELASZ),
            (Form.RELR, Tag.RELR, Tag.RELRSZ),
            (plt, Tag.JMPREL, Tag.PLTRELSZ),
        )
        if (offset := offset_of_tag(elf, tags, table)) >= 0
    ]


def _of_sections(elf: Elf, form: int) -> list[tuple[Section, Section]]:
    """(table, section it relocates) of the tables of one form in a relocatable file."""
    kind = Section.SHT_RELA if form == Form.RELA else Section.SHT_REL
    out = []
    for section in elf.sections:
        if section.type != kind or not section.size:
            continue
        if section.info >= len(elf.sections):
            raise InputError(elf.path, f"{section.name} relocates section {section.info}")
        target = elf.sections[section.info]
        if target.flags & Section.SHF_ALLOC:
            out.append((section, target))
    return out


def _read_relocatable(
    elf: Elf, form: int, tables: list[tuple[Section, Section]]
) -> tuple[NDArray[np.generic], ...]:
    """Read all tables of one form at once: a module has a dozen, most with few entries."""
    elf.bounded("relocation tables", (table.size for table, _ in tables))
    size = (3 if form == Form.RELA else 2) * elf.word
    counts = np.array([table.size // size for table, _ in tables])
    held = [elf.contents(t.offset, t.size // size * size, t.name) for t, _ in tables]
    of = np.repeat(np.arange(len(tables)), counts)
    start = np.array([table.offset for table, _ in tables])
    entry = start[of] + (np.arange(len(of)) - (np.cumsum(counts) - counts)[of]) * size
    columns = _columns(elf, form, np.concatenate(held), entry)
    place: NDArray[np.uint64] = columns[0].astype(np.uint64)
    limit = np.array([target.size for _, target in tables], np.uint64)[of]
    if (place >= limit).any():
        name = tables[int(of[(place >= limit).argmax()])][1].name
        raise InputError(elf.path, f"a relocation of {name} lies outside of it")
    base = np.array([target.address for _, target in tables], np.uint64)[of]
    return place + base, *columns[1:]


def _read(elf: Elf, form: int, offset: int, size: int) -> tuple[NDArray[np.generic], ...]:
    words = {Form.REL: 2, Form.RELA: 3, Form.RELR: 1}[form]
    entry_size = words * elf.word
    count = size // entry_size
    raw = elf.contents(offset, count * entry_size, "relocation table")
    entry = offset + np.arange(count, dtype=np.int64) * entry_size
    if form == Form.RELR:
        return _relr(elf, elf.order.unsigned(raw, elf.word), entry)
    return _columns(elf, form, raw, entry)


def _columns(
    elf: Elf, form: int, raw: NDArray[np.uint8], entry: NDArray[np.int64]
) -> tuple[NDArray[np.generic], ...]:
    """Parse the REL or RELA entries at file offsets ``entry``, whose bytes are ``raw``."""
    wide, count = elf.word == 8, len(entry)
    table = elf.order.unsigned(raw, elf.word).reshape(count, 3 if form == Form.RELA else 2)
    info = table[:, 1]
    addend = np.zeros(count, np.int64)
    if form == Form.RELA:
        addend = (
            table[:, 2].view(np.int64) if wide else table[:, 2].astype(np.int32).astype(np.int64)
        )
    return (
        table[:, 0],
        (info & np.uint64(0xFFFF_FFFF if wide else 0xFF)).astype(np.uint32),
        (info >> np.uint64(32 if wide else 8)).astype(np.uint32),
        addend,
        np.full(count, form, np.uint8),
        entry,
        np.zeros(count, np.uint8),
    )


def _relr(
    elf: Elf, word: NDArray[np.uint64], entry: NDArray[np.int64]
) -> tuple[NDArray[np.generic], ...]:
    """Expand a RELR table to places.

    An even word is an address: that place. Each odd word that follows is a bitmap of the next
    8*size-1 places; so the base of a bitmap is its address word + size * (1 + bitmaps between).
    """
    n, size = len(word), elf.word
    per = 8 * size - 1
    is_bitmap = (word & np.uint64(1)).astype(bool)
    index = np.arange(n)
    last = np.maximum.accumulate(np.where(is_bitmap, -1, index)) if n else index
    orphan = last < 0
    start = word[np.maximum(last, 0)] + np.uint64(size)
    base = start + ((index - last - 1) * per * size).astype(np.uint64)
    bits = np.unpackbits(word.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
    if int(bits.sum(dtype=np.int64)) * size > MAX_RELR:
        raise InputError(elf.path, "its RELR tables relocate too many words")
    row, bit = np.nonzero(bits[:, 1 : per + 1] & (is_bitmap & ~orphan)[:, None])
    heads = np.flatnonzero(~is_bitmap)
    place = np.concatenate([word[heads], base[row] + (bit * size).astype(np.uint64)])
    count = len(place)
    zero = np.zeros(count, np.uint32)
    return (
        place,
        zero,
        zero,
        np.zeros(count, np.int64),
        np.full(count, Form.RELR, np.uint8),
        np.concatenate([entry[heads], entry[row]]),
        np.concatenate([np.zeros(len(heads), np.uint8), (bit + 1).astype(np.uint8)]),
    )
