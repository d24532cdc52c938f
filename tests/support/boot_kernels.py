# SPDX-License-Identifier: MIT
"""Kernels as they are installed, for tests: without symbols, with or without a kallsyms of their
own, and what is true of each at hand."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.elf_writer import (
    PF_R,
    PF_W,
    PF_X,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    Image,
    Section,
    Segment,
    Symbol,
)
from tests.support.images import FUNCTIONS, call32
from tests.support.kallsyms_writer import LAYOUTS, Layout, write_kallsyms

__all__ = ["BASE", "EARLY", "NAMES", "STEP", "TABLES", "Stripped", "relocs"]

BASE = 0xFFFF_FFFF_8100_0000
TEXT, INIT, STEP = BASE + 0x1000, BASE + 0x30000, 32
HELPERS = ("__fentry__", "ftrace_stub", "ftrace_caller", "ftrace_regs_caller")
EARLY = ("start_kernel", "rest_init", "setup_arch")
NAMES = (*FUNCTIONS, *(f"do_work_{i}" for i in range(300)))
AX, AW = SHF_ALLOC | SHF_EXECINSTR, SHF_ALLOC | SHF_WRITE

Arranged = Callable[[list[int]], list[int]]
NULLS = [0] * 7


def _shuffled(sites: list[int]) -> list[int]:
    return random.Random(5).sample(sites, len(sites))


TABLES: dict[str, Arranged] = {
    "sorted": sorted,
    "unsorted": _shuffled,
    "nulls-in-the-middle": lambda sites: sites[:99] + NULLS + sites[99:200] + NULLS + sites[200:],
    "nulls-in-front": lambda sites: NULLS + sites,
}
"""How the records of all sites may lie in a table."""


def relocs(places: list[int]) -> bytes:
    """What the build puts behind a bzImage's vmlinux (arch/x86/tools/relocs.c): lists of the words
    to be relocated, of 64 bits and of 32, a 0 before each."""
    words = [place - (1 << 64) for place in places]
    return struct.pack(f"<{len(words) + 3}i", 0, *words, 0, BASE - (1 << 64))


@dataclass
class Stripped:
    """An x86_64 kernel by its headers: text, kallsyms, the sections that make a vmlinux, and
    .init.data with other pointers around the table.

    ``layout``: that of its own kallsyms, None for none; ``bounds``: whether that names where the
    table is; ``arranged``: its records; ``data``: what is in .data. ``sites``: address -> name,
    as built."""

    layout: Layout | None = LAYOUTS[7]
    bounds: bool = True
    arranged: Arranged = sorted
    data: bytes = b""
    sites: dict[int, str] = field(default_factory=dict)
    table: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.helpers = {name: BASE + 16 + 16 * i for i, name in enumerate(HELPERS)}
        for start, names in ((TEXT, NAMES), (INIT + STEP, EARLY)):
            self.sites |= {start + STEP * i: name for i, name in enumerate(names)}
        self.table = self.arranged(list(self.sites))
        self.start = BASE + 0x40000 + 8 * 15

    @property
    def symbols(self) -> dict[str, int]:
        """All that it names."""
        end = TEXT + STEP * len(NAMES)
        bounds = {"_stext": BASE, "_etext": end, "_sinittext": INIT, "_einittext": INIT + 0x100}
        table = {
            "__start_mcount_loc": self.start,
            "__stop_mcount_loc": self.start + 8 * len(self.table),
        }
        functions = {name: at for at, name in self.sites.items()}
        return self.helpers | functions | bounds | (table if self.bounds else {})

    def image(self) -> Image:
        """The parts, without any symbol table."""
        text = bytearray(b"\xcc" * (TEXT - BASE + STEP * len(NAMES)))
        for at in self.helpers.values():
            text[at - BASE] = 0xC3
        init = bytearray(b"\xcc" * 0x100)
        for at in self.sites:
            part, low = (init, INIT) if at >= INIT else (text, BASE)
            code = call32(at, self.helpers["__fentry__"]) + b"\xc3"
            part[at - low : at - low + len(code)] = code
        made = Image(62)
        # Initcalls, say: pointers to functions that the table has as well, but not beside it.
        early = [at for at in self.sites if at >= INIT] * 3
        words = [BASE + 0x20000, *early, 9, 9, 0, 0, 0, *self.table, 5, *early, 5]
        parts = [
            Section(".text", bytes(text), BASE, flags=AX),
            Section(".rodata", self._kallsyms(), BASE + 0x20000),
            Section("__ksymtab", bytes(16), BASE + 0x28000),
            Section("__param", bytes(16), BASE + 0x29000),
            Section(".data..percpu", bytes(16), BASE + 0x2A000, flags=AW),
            Section(".init.text", bytes(init), INIT, flags=AX),
            Section(".init.data", made.table(words), BASE + 0x40000, flags=AW),
        ]
        assert words[15:-11] == self.table
        if self.data:
            parts.append(Section(".data", self.data, BASE + 0x80000, flags=AW))
        made.sections += parts
        made.segments += [
            Segment((part.name,), PF_R | (PF_X if part.flags & SHF_EXECINSTR else PF_W))
            for part in parts
        ]
        return made

    def build(self) -> bytes:
        """As it lies in a bzImage."""
        return self.image().build()

    def with_symbols(self) -> bytes:
        """The same kernel before it was stripped."""
        image = self.image()
        image.symbols += [
            Symbol(name, at, STEP if at in self.sites else 0, 2 if at in self.sites else 0)
            for name, at in self.symbols.items()
        ]
        return image.build()

    def _kallsyms(self) -> bytes:
        text = b"Linux version 6.1.0-test (builder@host) #1 SMP\n\0".ljust(64, b"\0")
        if self.layout is None:
            return text
        rows = sorted((at, "D" if "mcount" in n else "T", n) for n, at in self.symbols.items())
        return text + write_kallsyms(rows, self.layout, 8, BASE + 0x20000 + len(text)).data
