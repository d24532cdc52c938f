# SPDX-License-Identifier: MIT
"""Headers of an ELF file (System V ABI, chapters 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

from ftpatch.core.byte_order import LITTLE, ByteOrder

__all__ = ["Section", "Segment", "Skeleton"]


@dataclass(frozen=True, slots=True)
class Section:
    """One section header; addresses are virtual, offsets are file offsets, sizes are in bytes."""

    index: int
    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    entsize: int

    def at(self, address: int) -> Section:
        """The same section at another address. (dataclasses.replace takes four times as long.)"""
        return Section(
            index=self.index,
            name=self.name,
            type=self.type,
            flags=self.flags,
            address=address,
            offset=self.offset,
            size=self.size,
            link=self.link,
            info=self.info,
            entsize=self.entsize,
        )

    SHT_NULL = 0
    SHT_PROGBITS = 1
    SHT_SYMTAB = 2
    SHT_STRTAB = 3
    SHT_RELA = 4
    SHT_NOBITS = 8
    SHT_REL = 9
    SHT_DYNSYM = 11
    SHT_RELR = 19
    SHF_WRITE = 1
    SHF_ALLOC = 2
    SHF_EXECINSTR = 4
    SHF_INFO_LINK = 0x40
    SHF_RELA_LIVEPATCH = 0x0010_0000


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header; ``size`` bytes in the file, ``memory_size`` in memory."""

    type: int
    flags: int
    offset: int
    address: int
    size: int
    memory_size: int

    PT_LOAD = 1
    PT_DYNAMIC = 2
    PT_INTERP = 3
    PT_NOTE = 4
    PT_PHDR = 6
    PT_GNU_EH_FRAME = 0x6474E550
    PT_ARM_EXIDX = 0x70000001
    PF_X = 1
    PF_W = 2
    PF_R = 4


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Contents of the headers; ``elf_class`` is 32 or 64 (bits), ``section_headers`` e_shoff,
    ``order`` that of all numbers."""

    elf_class: int
    machine: int
    type: int
    sections: tuple[Section, ...]
    segments: tuple[Segment, ...]
    section_headers: int = 0
    order: ByteOrder = LITTLE

    ET_REL = 1
    ET_EXEC = 2
    ET_DYN = 3
