# SPDX-License-Identifier: MIT
"""What a vmlinux holds, found without any of ftpatch's code: pyelftools, numpy and Capstone.

The rules are the kernel's: ftrace_process_locs, arch/*/kernel/ftrace.c, and on arm64 the
relocations that arch/arm64/kernel/pi/relocate.c applies before anything else runs.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

import capstone
import numpy as np
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from .kallsyms import Kallsyms

__all__ = ["NOP", "MOV_X9_X30", "PADS", "PROLOGUE", "R_NONE", "Vmlinux"]

Addresses = NDArray[np.uint64]

NOP = 0xD503201F  # nop
MOV_X9_X30 = 0xAA1E03E9  # mov x9, x30
BTI_C = 0xD503245F  # bti c
R_NONE = 0  # of every machine
RELATIVE = {"arm64": 1027, "ppc64le": 22, "loongarch64": 3}
"""R_*_RELATIVE of kernels that relocate themselves by .rela.dyn."""

ARCHES = {"EM_X86_64": "x86_64", "EM_386": "i386", "EM_AARCH64": "arm64", "EM_RISCV": "riscv64",
          "EM_S390": "s390x", "EM_PPC64": "ppc64le", "EM_ARM": "arm",
          "EM_LOONGARCH": "loongarch64"}  # fmt: skip
PADS = ("arm64", "riscv64", "s390x", "ppc64le", "loongarch64")
PROLOGUE = 24  # bytes: registers pushed, room made for variables, lr pushed
EXTENT = {"arm64": (4, 8), "ppc64le": (4, 8), "s390x": (0, 6), "arm": (0, 4), "loongarch64": (0, 8)}
SYMBOL = {
    64: np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"),
                  ("value", "<u8"), ("size", "<u8")]),
    32: np.dtype([("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"),
                  ("other", "u1"), ("shndx", "<u2")]),
}  # fmt: skip
RELA = np.dtype([("offset", "<u8"), ("info", "<u8"), ("addend", "<u8")])


class Vmlinux:
    """One kernel file; everything is read when asked for, and no byte is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = np.memmap(path, np.uint8, "r")
        with path.open("rb") as file:
            elf = ELFFile(file)
            self.arch = ARCHES[elf["e_machine"]]
            self.bits = int(elf.elfclass)
            self.order: Literal["<", ">"] = "<" if elf.little_endian else ">"
            self.sections = {
                s.name: (int(s["sh_addr"]), int(s["sh_offset"]), int(s["sh_size"]))
                for s in elf.iter_sections()
            }
            self._loads = [
                (int(p["p_vaddr"]), int(p["p_offset"]), int(p["p_filesz"]))
                for p in elf.iter_segments("PT_LOAD")
            ]

    # Symbols and addresses

    @cached_property
    def _symbols(self) -> tuple[NDArray[np.void], bytes]:
        _, at, size = self.sections[".symtab"]
        _, strings_at, strings_size = self.sections[".strtab"]
        kind = SYMBOL[self.bits].newbyteorder(self.order)
        table = np.frombuffer(self.data[at : at + size], kind)
        return table, self.data[strings_at : strings_at + strings_size].tobytes()

    def find(self, name: str) -> int | None:
        """The address of a symbol, or None."""
        hits = self.symbol(name)
        return hits[0] if hits else None

    def symbol(self, name: str) -> tuple[int, int] | None:
        """Address and size (bytes) of a symbol, or None."""
        table, strings = self._symbols
        # Linkers may share suffixes: ftrace_caller may be the end of __pfx_ftrace_caller.
        wanted, at, places = name.encode() + b"\0", -1, []
        while (at := strings.find(wanted, at + 1)) >= 0:
            places.append(at)
        hits = table[np.isin(table["name"], places)]
        return (int(hits[0]["value"]), int(hits[0]["size"])) if len(hits) else None

    def address(self, name: str) -> int:
        found = self.find(name)
        assert found is not None, f"{self.path.name} has no symbol {name}"
        return found

    def offset(self, address: int) -> int:
        """File offset of an address."""
        return int(self.offsets(np.array([address], np.uint64))[0])

    def offsets(self, addresses: Addresses) -> NDArray[np.int64]:
        out = np.full(len(addresses), -1, np.int64)
        for vaddr, at, size in self._loads:
            inside = (addresses >= vaddr) & (addresses - np.uint64(vaddr) < size)
            out[inside] = (addresses[inside] - np.uint64(vaddr)).astype(np.int64) + at
        assert (out >= 0).all(), "an address lies in no segment"
        return out

    def array(self, name: str, dtype: str, count: int) -> NDArray[np.generic]:
        at = self.offset(self.address(name))
        kind = np.dtype(dtype).newbyteorder(self.order)
        return np.frombuffer(self.data[at : at + kind.itemsize * count], kind)

    def word(self, address: int) -> int:
        """The pointer-sized value at an address as the running kernel (no KASLR) sees it."""
        hit = np.flatnonzero(self.relative[0] == address)
        if len(hit):
            return int(self.relative[1][hit[0]])
        return int(self._words(address, address + self.bits // 8)[0])

    def _words(self, start: int, end: int) -> NDArray[np.uint64]:
        at = self.offset(start)
        raw = np.frombuffer(self.data[at : at + end - start], f"{self.order}u{self.bits // 8}")
        return raw.astype(np.uint64)

    def packed(self, value: int) -> bytes:
        """A pointer-sized value, as the file has it."""
        return value.to_bytes(self.bits // 8, "little" if self.order == "<" else "big")

    # Relocations (arm64, ppc64le)

    @cached_property
    def relative_type(self) -> int:
        """R_*_RELATIVE; -1 where the kernel does not relocate itself."""
        return RELATIVE.get(self.arch, -1)

    @cached_property
    def rela(self) -> NDArray[np.void]:
        _, at, size = self.sections.get(".rela.dyn", (0, 0, 0))
        return np.frombuffer(self.data[at : at + size], RELA)

    @cached_property
    def relative(self) -> tuple[Addresses, Addresses]:
        """(places, values) of all RELATIVE relocations, RELA's and RELR's, sorted by place."""
        rows = self.rela[(self.rela["info"] == self.relative_type)]
        packed = self._relr()
        in_place = np.array([self._words(p, p + 8)[0] for p in packed.tolist()], np.uint64)
        places = np.concatenate([rows["offset"], packed])
        values = np.concatenate([rows["addend"], in_place])
        order = np.argsort(places, kind="stable")
        return places[order], values[order]

    def _relr(self) -> Addresses:
        """Places that .relr.dyn names: even entries are addresses, odd ones maps of 63 words."""
        _, at, size = self.sections.get(".relr.dyn", (0, 0, 0))
        places: list[int] = []
        base = 0
        for entry in np.frombuffer(self.data[at : at + size], "<u8").tolist():
            if entry & 1:
                places += [base + 8 * bit for bit in range(63) if entry >> (bit + 1) & 1]
                base += 63 * 8
            else:
                places.append(entry)
                base = entry + 8
        return np.array(places, np.uint64)

    # The table

    @cached_property
    def table(self) -> tuple[int, int]:
        return self.address("__start_mcount_loc"), self.address("__stop_mcount_loc")

    @cached_property
    def records(self) -> Addresses:
        """The table's values as the running kernel (no KASLR) sees them; 0 is a null record."""
        start, end = self.table
        values = self._words(start, end).copy()
        places, addends = self.relative
        inside = (places >= start) & (places < end)
        values[((places[inside] - np.uint64(start)) // np.uint64(8)).astype(np.int64)] = addends[
            inside
        ]
        return values

    @cached_property
    def call_ops(self) -> bool:
        """Whether a literal before each function names its ftrace_ops (arm64, CALL_OPS)."""
        return self.find("ftrace_nop_ops") is not None

    @cached_property
    def landing(self) -> int:
        """Bytes that may stand between a function's symbol and the code of its site: endbr64, bti
        c; what makes r2 at a global entry; with -pg the prologue."""
        return {"ppc64le": 8, "arm": PROLOGUE, "s390x": 0}.get(self.arch, 4)

    @cached_property
    def entries(self) -> tuple[int, ...]:
        """Bytes from a function's symbol at which the code of its site may begin."""
        if self.arch == "arm":  # lr is pushed before the site
            return tuple(range(4, self.landing + 1, 4))
        return (0, self.landing)

    @cached_property
    def init_compares(self) -> bool:
        """Whether ftrace_init_nop reads a site before it writes."""
        return self.arch != "riscv64"

    @cached_property
    def uncompared(self) -> NDArray[np.bool_]:
        """The sites that ftrace_init turns into NOPs without reading them: arm's in .init.text,
        since v5.18 (ftrace_init_nop in arch/arm/kernel/ftrace.c)."""
        low, high = 0, 0
        if self.arch == "arm" and self.find("ftrace_caller_from_init") is not None:
            low, high = self.address("_sinittext"), self.address("_einittext")
        return (self.sites >= low) & (self.sites < high)

    @cached_property
    def sites(self) -> Addresses:
        """ip of every record that is not null, in the table's order."""
        return self.call_adjust(self.records[self.records != 0])

    @cached_property
    def pads(self) -> bool:
        """Whether the compiler left NOPs: there, nothing is left to disable."""
        return self.arch in PADS

    @cached_property
    def extent(self) -> tuple[int, int]:
        """Of the code at a site: bytes before ip, and bytes in all."""
        if self.arch == "riscv64":
            return 4 if self.call_ops else 0, 8
        return EXTENT.get(self.arch, (0, 5))

    def call_adjust(self, records: Addresses) -> Addresses:
        if self.arch == "riscv64":
            return records + np.uint64(12 if self.call_ops else 0)
        if self.arch not in ("arm64", "ppc64le"):
            return records
        if not self.call_ops:  # the second of two NOPs
            return records + np.uint64(4)
        entry = records + np.uint64(8)  # two NOPs stand before the function
        skip = np.where(self.insns(entry) == BTI_C, 8, 4).astype(np.uint64)
        return entry + skip

    def insns(self, addresses: Addresses) -> NDArray[np.uint32]:
        """The 32-bit words at addresses."""
        return self.code(addresses, 4).copy().view("<u4").reshape(-1)

    def code(self, addresses: Addresses, width: int) -> NDArray[np.uint8]:
        """``width`` bytes at each address, a row each."""
        return np.asarray(self.data[self.offsets(addresses)[:, None] + np.arange(width)])

    @cached_property
    def disassembler(self) -> capstone.Cs:
        if self.arch == "arm64":
            return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
        if self.arch == "riscv64":
            mode = capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC
            return capstone.Cs(capstone.CS_ARCH_RISCV, mode)
        if self.arch == "s390x":
            return capstone.Cs(capstone.CS_ARCH_SYSZ, capstone.CS_MODE_BIG_ENDIAN)
        if self.arch == "ppc64le":
            mode = capstone.CS_MODE_64 | capstone.CS_MODE_LITTLE_ENDIAN
            return capstone.Cs(capstone.CS_ARCH_PPC, mode)
        if self.arch == "arm":
            return capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_ARM)
        mode = capstone.CS_MODE_64 if self.bits == 64 else capstone.CS_MODE_32
        return capstone.Cs(capstone.CS_ARCH_X86, mode)

    @cached_property
    def kallsyms(self) -> Kallsyms:
        return Kallsyms(self)

    @cached_property
    def names(self) -> list[str]:
        """The function of each site, in the order of `sites`, as ftrace's filters name it."""
        return [name for name, _, _ in self.kallsyms.lookup(self.sites)]
