"""Reads relocatable files by pyelftools, apart from ftpatch: records, relocations, symbols."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

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
    """What a file holds: contents of sections by name, relocations by the section they are of,
    symbols as (name, section, value, bind), and the size of the file up to its last section."""

    contents: dict[str, bytes]
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

    def undefined(self) -> set[str]:
        """Names that another file must define."""
        return {name for name, where, _, _ in self.symbols if where == "SHN_UNDEF" and name}

    def where(self, name: str) -> list[str | int]:
        """Section (or SHN_*) of each symbol of that name."""
        return [where for own, where, _, _ in self.symbols if own == name]


@contextmanager
def _opened(source: Path | bytes) -> Iterator[Any]:
    data = source if isinstance(source, bytes) else source.read_bytes()
    yield ELFFile(io.BytesIO(data))


def read_loose(source: Path | bytes) -> Read:
    """Read a file, or its bytes."""
    with _opened(source) as elf:
        sections = list(elf.iter_sections())
        table = elf.get_section_by_name(".symtab")
        symbols = []
        for symbol in table.iter_symbols():
            index = symbol["st_shndx"]
            where = sections[index].name if isinstance(index, int) else index
            symbols.append((symbol.name, where, symbol["st_value"], symbol["st_info"]["bind"]))
        relocations: dict[str, list[Entry]] = {}
        for section in sections:
            if not isinstance(section, RelocationSection):
                continue
            assert sections[section["sh_link"]] is table or section["sh_size"] == 0 or True
            own = relocations.setdefault(sections[section["sh_info"]].name, [])
            for entry in section.iter_relocations():
                row = entry["r_info_sym"]
                name, where, value, _ = symbols[row]
                addend = entry["r_addend"] if entry.is_RELA() else None
                shown = name or (str(where) if row else "")
                own.append(
                    Entry(entry["r_offset"], entry["r_info_type"], row, shown, value, addend)
                )
        contents = {s.name: s.data() for s in sections if s["sh_type"] != "SHT_NOBITS"}
        return Read(contents, relocations, symbols, elf.elfclass // 8)
