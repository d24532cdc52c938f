# SPDX-License-Identifier: MIT
"""An independent reader of ftrace tables: pyelftools for the file, Capstone for the code.

It shares nothing with ftpatch, so that the manifest's expected values are a second opinion.
It reads every byte again for every question; the samples are small.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

from arches import ARCHES, DECODERS, RELATIVE
from capstone import Cs, CsInsn
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection, RelrRelocationSection
from site_forms import SITES, Pad, Site

__all__ = ["Image", "Pad", "Site"]

MCOUNT, PATCHABLE = "__mcount_loc", "__patchable_function_entries"
DF_1_PIE = 0x08000000


class Image:
    """One ELF file."""

    def __init__(self, path: Path, pad: Pad) -> None:
        self.path, self.pad = path, pad
        # The stream stays open: pyelftools reads as it is asked.
        self.elf: Any = ELFFile(path.open("rb"))
        self.arch = ARCHES[self.elf["e_machine"]]
        self.word = self.elf.elfclass // 8
        self.decoder = Cs(*DECODERS[self.arch])

    def read(self, address: int, size: int) -> bytes:
        """The bytes at an address, from the segment that holds it."""
        for segment in self.elf.iter_segments("PT_LOAD"):
            at = address - segment["p_vaddr"]
            if at >= 0 and at + size <= segment["p_filesz"]:
                self.elf.stream.seek(segment["p_offset"] + at)
                return bytes(self.elf.stream.read(size))
        return b""

    def offset(self, address: int) -> int:
        """Where an address lies in the file."""
        return next(
            int(segment["p_offset"]) + address - int(segment["p_vaddr"])
            for segment in self.elf.iter_segments("PT_LOAD")
            if 0 <= address - segment["p_vaddr"] < segment["p_filesz"]
        )

    @cached_property
    def symbols(self) -> list[tuple[str, int, str]]:
        """(name, value, type) of .symtab, or of .dynsym without it."""
        for name in (".symtab", ".dynsym"):
            if section := self.elf.get_section_by_name(name):
                return [
                    (s.name, s["st_value"], s["st_info"]["type"])
                    for s in section.iter_symbols()
                    if s.name and s["st_shndx"] != "SHN_UNDEF"
                ]
        return []

    def address_of(self, name: str) -> int | None:
        """The value of a symbol."""
        return next((value for symbol, value, _ in self.symbols if symbol == name), None)

    @cached_property
    def relocations(self) -> dict[int, int | str]:
        """What the loader writes where: a value (RELATIVE) or the name of a symbol."""
        found: dict[int, int | str] = {}
        for section in self.elf.iter_sections():
            if isinstance(section, RelrRelocationSection):
                for entry in section.iter_relocations():
                    at = entry["r_offset"]
                    found[at] = int.from_bytes(self.read(at, self.word), "little")
            elif isinstance(section, RelocationSection) and section["sh_flags"] & 2:
                names = self.elf.get_section(section["sh_link"])
                for entry in section.iter_relocations():
                    at = entry["r_offset"]
                    if entry["r_info_type"] != RELATIVE[self.arch]:
                        if entry["r_info_sym"]:
                            found[at] = names.get_symbol(entry["r_info_sym"]).name
                    elif section.is_RELA():
                        found[at] = entry["r_addend"] % 2 ** (8 * self.word)
                    else:
                        found[at] = int.from_bytes(self.read(at, self.word), "little")
        return found

    @property
    def container(self) -> str:
        """vmlinux, executable or shared-object."""
        if self.address_of("linux_banner") is not None:
            return "vmlinux"
        dynamic = [t for s in self.elf.iter_segments("PT_DYNAMIC") for t in s.iter_tags()]
        flags = next((t["d_val"] for t in dynamic if t["d_tag"] == "DT_FLAGS_1"), 0)
        if self.elf["e_type"] == "ET_EXEC" or flags & DF_1_PIE:
            return "executable"
        return "shared-object"

    @cached_property
    def slots(self) -> list[int]:
        """The addresses of the table's slots."""
        start = self.address_of("__start_mcount_loc")
        stop = self.address_of("__stop_mcount_loc")
        if start is not None and stop is not None:
            return list(range(start, stop, self.word))
        return [
            slot
            for section in self.elf.iter_sections()
            if section.name in (MCOUNT, PATCHABLE)
            for slot in range(
                section["sh_addr"], section["sh_addr"] + section["sh_size"], self.word
            )
        ]

    @property
    def table(self) -> str | None:
        """The name of the table; a kernel's is known by its two symbols."""
        if self.address_of("__start_mcount_loc") is not None:
            return MCOUNT
        names = [section.name for section in self.elf.iter_sections()]
        return next((name for name in (MCOUNT, PATCHABLE) if name in names), None)

    @cached_property
    def records(self) -> list[int]:
        """The values of the table, as they are once relocated."""
        values = []
        for slot in self.slots:
            value = self.relocations.get(slot)
            stored = int.from_bytes(self.read(slot, self.word), "little")
            values.append(value if isinstance(value, int) else stored)
        return values

    def instruction(self, address: int) -> CsInsn | None:
        """The instruction at an address."""
        return next(self.decoder.disasm(self.read(address, 4), address, 1), None) or next(
            self.decoder.disasm(self.read(address, 8), address, 1), None
        )

    def name_of(self, address: int) -> str:
        """The function at an address, or the address itself."""
        names = [n for n, value, kind in self.symbols if value == address and kind != "STT_FILE"]
        return names[0] if names else hex(address)

    def slot_target(self, slot: int) -> str:
        """What a pointer in memory, such as a slot of the GOT, leads to."""
        value = self.relocations.get(slot)
        if value is None:
            value = int.from_bytes(self.read(slot, self.word), "little")
        return value if isinstance(value, str) else self.name_of(value)

    def target(self, call: CsInsn) -> str:
        """Where a call leads: directly, through the GOT, or through a PLT entry."""
        if "rip" in call.op_str:
            (disp,) = (operand.mem.disp for operand in self._operands(call))
            return self.slot_target(call.address + call.size + disp)
        if "ebx" in call.op_str:  # which holds the address of the GOT
            (disp,) = (operand.mem.disp for operand in self._operands(call))
            return self.slot_target((self.address_of("_GLOBAL_OFFSET_TABLE_") or 0) + disp)
        address = int(call.op_str.lstrip("#"), 16)
        step = self.instruction(address)
        if step is not None and step.mnemonic in ("bnd jmp", "jmp") and "rip" in step.op_str:
            (disp,) = (operand.mem.disp for operand in self._operands(step))
            return self.slot_target(step.address + step.size + disp)
        return self.name_of(address)

    def _operands(self, instruction: CsInsn) -> list[Any]:
        detailed = Cs(*DECODERS[self.arch])
        detailed.detail = True
        again = detailed.disasm(bytes(instruction.bytes), instruction.address, 1)
        return list(next(again).operands)

    def site(self, record: int) -> Site:
        """The site of one record."""
        return SITES[self.arch](self, record)

    @cached_property
    def sites(self) -> list[Site]:
        """All sites; none where all NOPs stand before the functions and never run."""
        if self.pad.total and self.pad.total == self.pad.before:
            return []
        return [self.site(record) for record in self.records if record]

    def expected(self) -> dict[str, Any]:
        """What ftpatch should say about the file."""
        states = Counter(site.state for site in self.sites)
        targets = Counter(site.target for site in self.sites if site.target)
        return {
            "container": self.container,
            "arch": self.arch,
            "table": self.table,
            "records": len(self.records),
            "null": self.records.count(0),
            "sites": len(self.sites),
            "states": {name: states[name] for name in ("nop", "call", "unexpected")},
            "targets": dict(sorted(targets.items())),
        }
