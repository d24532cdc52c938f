# SPDX-License-Identifier: MIT
"""An ELF writer for tests: any class, machine and byte order, and malformed where that is asked.

Everything lies in one file in this order; contents of sections get an address as they say.

    | Ehdr | Phdr... | contents of sections ... | .symtab | .strtab | .shstrtab | Shdr... |
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Image", "Section", "Segment", "Symbol"]

SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB = 1, 2, 3
SHT_RELA, SHT_NOBITS, SHT_REL, SHT_DYNSYM, SHT_RELR = 4, 8, 9, 11, 19
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
PT_LOAD, PF_X, PF_W, PF_R = 1, 1, 2, 4
ABSOLUTE = 0xFFF1
HEADER = "e_type e_machine e_version e_entry e_phoff e_shoff e_flags e_ehsize e_phentsize e_phnum"
HEADER += " e_shentsize e_shnum e_shstrndx"


@dataclass
class Section:
    """One section. ``size`` overrides that of its contents (SHT_NOBITS), ``header`` any field."""

    name: str
    data: bytes = b""
    address: int = 0
    type: int = SHT_PROGBITS
    flags: int = SHF_ALLOC
    align: int = 16
    link: int = 0
    info: int = 0
    entsize: int = 0
    size: int | None = None
    header: dict[str, int] = field(default_factory=dict)


@dataclass
class Segment:
    """One program header over the sections of these names, contiguous in the file."""

    sections: tuple[str, ...]
    flags: int = PF_R | PF_X
    type: int = PT_LOAD
    header: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Symbol:
    """One symbol; ``section`` is a section's name, empty for an absolute one, None if undefined."""

    name: str | bytes
    value: int
    size: int = 0
    type: int = 2
    bind: int = 1
    section: str | None = ".text"


@dataclass
class Image:
    """The whole file. ``ident`` overrides bytes of e_ident, ``header`` fields of the ELF header."""

    machine: int = 62
    bits: int = 64
    big: bool = False
    type: int = 2
    sections: list[Section] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    shared_tails: bool = False
    headers: bool = True
    ident: dict[int, int] = field(default_factory=dict)
    header: dict[str, int] = field(default_factory=dict)

    def pack(self, words: str, *values: int) -> bytes:
        """Numbers in this file's byte order; ``W`` is an address."""
        order = ">" if self.big else "<"
        return struct.pack(order + words.replace("W", "Q" if self.bits == 64 else "I"), *values)

    def table(self, values: Iterable[int]) -> bytes:
        """Address-sized words."""
        return b"".join(self.pack("W", value) for value in values)

    def build(self) -> bytes:
        """The bytes of the file."""
        wide = self.bits == 64
        sections = [Section("", type=0, flags=0, align=0), *self.sections]
        if self.symbols:
            sections += self._symbol_table(sections)
        if self.headers:
            name_table, name_at = _strings((s.name.encode() for s in sections), shared=False)
            name_table += b".shstrtab\0"
            sections.append(Section(".shstrtab", name_table, 0, SHT_STRTAB, 0, 1))
            name_at[b".shstrtab"] = len(name_table) - len(b".shstrtab\0")
        ehsize, phentsize, shentsize = (64, 56, 64) if wide else (52, 32, 40)
        body = bytearray(ehsize + phentsize * len(self.segments))
        offsets = []
        for section in sections:
            # An address and its offset agree modulo the page, as loaders demand.
            page = 0x1000 if section.address else max(section.align, 1)
            body += bytes((section.address - len(body)) % page)
            offsets.append(len(body))
            if section.type != SHT_NOBITS:
                body += section.data
        shoff = 0
        if self.headers:
            body += bytes(-len(body) % 8)
            shoff = len(body)
            for section, offset in zip(sections, offsets, strict=True):
                body += self._section_header(section, name_at[section.name.encode()], offset)
        fields = dict.fromkeys(HEADER.split(), 0) | {
            "e_type": self.type,
            "e_machine": self.machine,
            "e_version": 1,
            "e_phoff": ehsize if self.segments else 0,
            "e_shoff": shoff,
            "e_ehsize": ehsize,
            "e_phentsize": phentsize,
            "e_phnum": len(self.segments),
            "e_shentsize": shentsize,
            "e_shnum": len(sections) if self.headers else 0,
            "e_shstrndx": len(sections) - 1 if self.headers else 0,
        }
        ident = bytearray(b"\x7fELF\0\0\1" + bytes(9))
        ident[4:6] = 2 if wide else 1, 2 if self.big else 1
        for at, value in self.ident.items():
            ident[at] = value
        fields |= self.header
        body[:ehsize] = bytes(ident) + self.pack("HHIWWWIHHHHHH", *fields.values())
        programs = b"".join(self._program_header(s, sections, offsets) for s in self.segments)
        body[ehsize : ehsize + len(programs)] = programs
        return bytes(body)

    def _symbol_table(self, before: list[Section]) -> list[Section]:
        numbers: Mapping[str, int] = {s.name: i for i, s in enumerate(before) if s.name}
        names = [s.name.encode() if isinstance(s.name, str) else s.name for s in self.symbols]
        strings, at = _strings(names, shared=self.shared_tails)
        rows = bytes(24 if self.bits == 64 else 16)
        for symbol, name in zip(self.symbols, names, strict=True):
            info = symbol.bind << 4 | symbol.type
            shndx = 0 if symbol.section is None else numbers.get(symbol.section, ABSOLUTE)
            if self.bits == 64:
                rows += self.pack("IBBHWW", at[name], info, 0, shndx, symbol.value, symbol.size)
            else:
                rows += self.pack("IWWBBH", at[name], symbol.value, symbol.size, info, 0, shndx)
        entsize = 24 if self.bits == 64 else 16
        link = len(before) + 1
        info = 1 + next((i for i, s in enumerate(self.symbols) if s.bind), len(self.symbols))
        return [
            Section(".symtab", rows, 0, SHT_SYMTAB, 0, 8, link=link, info=info, entsize=entsize),
            Section(".strtab", strings, 0, SHT_STRTAB, 0, 1),
        ]

    def _section_header(self, section: Section, name: int, offset: int) -> bytes:
        size = len(section.data) if section.size is None else section.size
        fields = {
            "sh_name": name,
            "sh_type": section.type,
            "sh_flags": section.flags,
            "sh_addr": section.address,
            "sh_offset": offset if section.type else 0,
            "sh_size": size,
            "sh_link": section.link,
            "sh_info": section.info,
            "sh_addralign": section.align,
            "sh_entsize": section.entsize,
        } | section.header
        return self.pack("IIWWWWIIWW", *fields.values())

    def _program_header(
        self, segment: Segment, sections: list[Section], offsets: list[int]
    ) -> bytes:
        inside = [i for i, s in enumerate(sections) if s.name and s.name in segment.sections]
        first, last = sections[inside[0]], sections[inside[-1]]
        filed = [i for i in inside if sections[i].type != SHT_NOBITS]
        end = offsets[filed[-1]] + len(sections[filed[-1]].data) if filed else offsets[inside[0]]
        memory = len(last.data) if last.size is None else last.size
        fields = {
            "p_type": segment.type,
            "p_flags": segment.flags,
            "p_offset": offsets[inside[0]],
            "p_vaddr": first.address,
            "p_filesz": end - offsets[inside[0]],
            "p_memsz": last.address + memory - first.address,
        } | segment.header
        fields = {"p_paddr": fields["p_vaddr"], "p_align": 0x1000} | fields
        order = "p_type p_flags p_offset p_vaddr p_paddr p_filesz p_memsz p_align"
        if self.bits == 32:
            order = "p_type p_offset p_vaddr p_paddr p_filesz p_memsz p_flags p_align"
        kinds = "IIWWWWWW" if self.bits == 64 else "IWWWWWIW"
        return self.pack(kinds, *(fields[name] for name in order.split()))


def _strings(names: Iterable[bytes], *, shared: bool) -> tuple[bytes, dict[bytes, int]]:
    """A string table and where each name begins; with ``shared`` a name may be another's tail."""
    table, at = b"\0", {b"": 0}
    for name in sorted(set(names), key=len, reverse=True):
        found = table.find(name + b"\0") if shared and name else -1
        if name and found < 0:
            found, table = len(table), table + name + b"\0"
        at.setdefault(name, found)
    return table, at
