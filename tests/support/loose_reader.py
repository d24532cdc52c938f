# SPDX-License-Identifier: MIT
"""Reads relocatable files by pyelftools, apart from ftpatch: records, relocations, symbols."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from tests.support.loose_forms import Form

__all__ = ["Entry", "Read", "read_loose"]


@dataclass(frozen=True)
class Entry:
    """A relocation: ``symbol`` is a name, a section's for section symbols, empty for symbol 0;
    ``row`` is its row, ``value`` st_value; ``addend`` is r_addend, None for REL."""

    place: int
    type: int
    row: int
    symbol: str
    value: int
    addend: int | None


@dataclass(frozen=True)
class Read:
    """What a file holds: contents and file offsets of sections by name, relocations by the section
    they are of, symbols as (name, section or SHN_*, value, bind), and the bytes of an address."""

    contents: dict[str, bytes]
    offsets: dict[str, int]
    relocations: dict[str, list[Entry]]
    symbols: list[tuple[str, str | int, int, str]]
    word: int

    def records(self, table: str) -> list[tuple[str, int]]:
        """(section, offset in it) of each record; a slot without a relocation is ("", word)."""
        held, out = self.contents[table], []
        entries = {entry.place: entry for entry in self.relocations.get(table, [])}
        for at in range(0, len(held), self.word):
            there = int.from_bytes(held[at : at + self.word], "little")
            entry = entries.get(at)
            if entry is None:
                out.append(("", there))
                continue
            addend = there if entry.addend is None else entry.addend
            _, where, value, _ = self.symbols[entry.row]
            out.append((str(where), value + addend))
        return out

    def at(self, section: str, place: int) -> list[Entry]:
        """The relocations of one place."""
        return [e for e in self.relocations.get(section, []) if e.place == place]

    def calls(self, form: Form, symbol: str, *records: tuple[str, int]) -> bool:
        """Whether the sites of all these records are calls of that symbol, and of nothing else."""
        addend = form.addend if form.rela else None
        for where, record in records:
            at = record + form.before
            code = self.contents[where][at : at + len(form.enabled)]
            said = [(e.type, e.symbol, e.addend) for e in self.at(where, at + form.place)]
            if code != form.enabled or said != [(form.call, symbol, addend)]:
                return False
        return True

    def undefined(self) -> set[str]:
        """Names that another file must define."""
        return {name for name, where, _, _ in self.symbols if where == "SHN_UNDEF" and name}

    def where(self, name: str) -> list[str | int]:
        """Section (or SHN_*) of each symbol of that name."""
        return [where for own, where, _, _ in self.symbols if own == name]


def read_loose(source: Path | bytes) -> Read:
    """Read a file, or its bytes."""
    data = source if isinstance(source, bytes) else source.read_bytes()
    elf = ELFFile(io.BytesIO(data))
    sections = list(elf.iter_sections())
    symbols = []
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        index = symbol["st_shndx"]
        where = sections[index].name if isinstance(index, int) else index
        symbols.append((symbol.name, where, symbol["st_value"], symbol["st_info"]["bind"]))
    relocations: dict[str, list[Entry]] = {}
    for section in sections:
        if not isinstance(section, RelocationSection):
            continue
        own = relocations.setdefault(sections[section["sh_info"]].name, [])
        for entry in section.iter_relocations():
            row = entry["r_info_sym"]
            name, where, value, _ = symbols[row]
            addend = entry["r_addend"] if entry.is_RELA() else None
            shown = name or (str(where) if row else "")
            own.append(Entry(entry["r_offset"], entry["r_info_type"], row, shown, value, addend))
    contents = {s.name: s.data() for s in sections if s["sh_type"] != "SHT_NOBITS"}
    offsets = {s.name: s["sh_offset"] for s in sections}
    return Read(contents, offsets, relocations, symbols, elf.elfclass // 8)
