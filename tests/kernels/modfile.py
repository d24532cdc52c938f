# SPDX-License-Identifier: MIT
"""What a module's file holds, found without any of ftpatch's code (pyelftools), and edits to it."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from elftools.elf.elffile import ELFFile

from .independent import PROLOGUE

__all__ = ["ModuleFile", "Record", "Relocation", "unsigned"]

MAGIC = b"~Module signature appended~\n"
TABLES = dict.fromkeys(("EM_X86_64", "EM_386", "EM_S390", "EM_ARM"), "__mcount_loc")
ABSOLUTE = {"EM_X86_64": 1, "EM_386": 1, "EM_AARCH64": 257, "EM_RISCV": 2, "EM_S390": 22,
            "EM_PPC64": 38, "EM_LOONGARCH": 2, "EM_ARM": 2}  # fmt: skip
BEFORE = {"EM_PPC64": (-8,), "EM_ARM": range(-4, -PROLOGUE - 1, -4)}
"""Bytes from a site to the start of its function, the likeliest first."""


def unsigned(data: bytes) -> bytes:
    """A module without its signature (include/linux/module_signature.h)."""
    if not data.endswith(MAGIC):
        return data
    size = int.from_bytes(data[-len(MAGIC) - 4 : -len(MAGIC)], "big")
    return data[: -len(MAGIC) - 12 - size]


@dataclass(frozen=True)
class Relocation:
    """One entry."""

    at: int  # of the entry in the file
    offset: int  # in its section
    symbol: int
    type: int
    addend: int | None  # None: it stands in place


@dataclass(frozen=True)
class Record:
    """One slot of the table, and where it points."""

    slot: int  # of the slot in the file
    entry: Relocation
    section: int
    value: int  # in its section
    function: str  # "" where no symbol tells


class ModuleFile:
    """A .ko in memory; edits go to ``data``."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.elf = ELFFile(io.BytesIO(data))
        self.machine: str = self.elf["e_machine"]
        self.wide = self.elf.elfclass == 64
        self.order = "<" if self.elf.little_endian else ">"
        self.sections: list[Any] = list(self.elf.iter_sections())
        self.symbols: list[Any] = list(self.elf.get_section_by_name(".symtab").iter_symbols())

    @cached_property
    def table(self) -> int:
        """Number of the section that this machine's kernel reads."""
        name = TABLES.get(self.machine, "__patchable_function_entries")
        return next(n for n, s in enumerate(self.sections) if s.name == name)

    @property
    def call_ops(self) -> bool:
        """Whether two NOPs stand before each function (arm64): then records point there."""
        first = self.records[0]
        pad = self.data[self.at(first.section, first.value) :][:16]
        return self.machine == "EM_AARCH64" and bytes(pad) == bytes.fromhex("1f2003d5") * 4

    @property
    def word(self) -> int:
        return 8 if self.wide else 4

    def section(self, name: str) -> int:
        return next(n for n, s in enumerate(self.sections) if s.name == name)

    def symbol(self, name: str) -> int:
        """Number of a symbol."""
        return next(n for n, s in enumerate(self.symbols) if s.name == name)

    def at(self, section: int, value: int = 0) -> int:
        """File offset of a place in a section."""
        return int(self.sections[section]["sh_offset"]) + value

    def relocation_table(self, section: int) -> int:
        """Number of the section with the relocations of a section."""
        forms = ("SHT_RELA", "SHT_REL")
        rows = enumerate(self.sections)
        return next(n for n, s in rows if s["sh_type"] in forms and s["sh_info"] == section)

    def relocations(self, section: int) -> list[Relocation]:
        """Those of a section."""
        rows = []
        for table in self.sections:
            if table["sh_type"] in ("SHT_RELA", "SHT_REL") and table["sh_info"] == section:
                start, size = int(table["sh_offset"]), int(table["sh_entsize"])
                for at in range(start, start + int(table["sh_size"]), size):
                    if self.wide:
                        offset, info, addend = struct.unpack_from(f"{self.order}QQq", self.data, at)
                        rows.append(Relocation(at, offset, info >> 32, info & 0xFFFFFFFF, addend))
                    else:
                        offset, info = struct.unpack_from("<II", self.data, at)
                        rows.append(Relocation(at, offset, info >> 8, info & 0xFF, None))
        return rows

    @cached_property
    def records(self) -> list[Record]:
        """The table, in its order, as it was when the file was read."""
        functions = {  # of aliases the first, as find_kallsyms_symbol() takes it
            (s["st_shndx"], s["st_value"]): s.name
            for s in reversed(self.symbols)
            if s["st_info"]["type"] == "STT_FUNC"
        }
        rows = []
        for entry in self.relocations(self.table):
            slot = self.at(self.table, entry.offset)
            addend = entry.addend
            if addend is None:
                (addend,) = struct.unpack_from("<i", self.data, slot)
            symbol = self.symbols[entry.symbol]
            section, value = symbol["st_shndx"], symbol["st_value"] + addend
            # The function may begin before the site (endbr64; a global entry; -pg's prologue), or
            # after the record (CALL_OPS).
            before = BEFORE.get(self.machine, (-4,))
            names = [functions.get((section, value + d), "") for d in (0, *before, 8)]
            rows.append(Record(slot, entry, section, value, next(filter(None, names), "")))
        return rows

    def record(self, function: str) -> Record:
        return next(r for r in self.records if r.function == function)

    def lasting(self) -> set[str]:
        """The functions with a record that stay when the module's .init sections are freed;
        powerpc's loader keeps all (module_init_section() in arch/powerpc/kernel/module_64.c), and
        lists them."""
        freed = "\0" if self.machine == "EM_PPC64" else ".init"
        names = ((self.sections[r.section].name, r.function) for r in self.records)
        return {function for name, function in names if not name.startswith(freed)}

    def relocation_at(self, section: int, offset: int) -> Relocation:
        return next(r for r in self.relocations(section) if r.offset == offset)

    def put(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data

    def point(self, entry: Relocation, symbol: int, type_: int, addend: int, place: int) -> None:
        """Give a relocation another symbol, type and addend (where it is, or in ``place``)."""
        if self.wide:
            struct.pack_into(
                f"{self.order}Qq", self.data, entry.at + 8, symbol << 32 | type_, addend
            )
        else:
            struct.pack_into("<I", self.data, entry.at + 4, symbol << 8 | type_)
            struct.pack_into("<i", self.data, place, addend)

    def redirect(self, record: Record, section: int, value: int) -> None:
        """Make a record one of another place."""
        own, symbol = next((n, s) for n, s in enumerate(self.symbols) if s["st_shndx"] == section)
        value -= int(symbol["st_value"])
        self.point(record.entry, own, ABSOLUTE[self.machine], value, record.slot)

    def shorten(self, section: int, size: int) -> None:
        """Take bytes from the end of a section, by its header alone."""
        header = self.elf["e_shoff"] + section * self.elf["e_shentsize"]
        at = header + (32 if self.wide else 20)  # sh_size
        form = self.order + ("Q" if self.wide else "I")
        (old,) = struct.unpack_from(form, self.data, at)
        struct.pack_into(form, self.data, at, old - size)
