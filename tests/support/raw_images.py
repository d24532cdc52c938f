# SPDX-License-Identifier: MIT
"""Images made by hand: header, text, strings, tables of names, pointers, relocations."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ftpatch.elf.relocations import Form
from ftpatch.image.raw_image import RawImage, read_raw_image
from tests.support.kallsyms_writer import LAYOUTS, Layout, write_kallsyms

__all__ = [
    "ARM64",
    "BASES",
    "END",
    "LOONGARCH64",
    "MEMORY",
    "RELATIVE",
    "RELOCATIONS",
    "RISCV64",
    "TABLES",
    "TEXT",
    "V6",
    "V7",
    "Made",
]

ARM64, RISCV64, LOONGARCH64 = b"ARM\x64", b"RSC\x05", b"\xcd\x23\x82\x81"
BASES = {ARM64: 0xFFFF_8000_8000_0000, RISCV64: 0xFFFF_FFFF_8000_0000}
BASES |= {LOONGARCH64: 0x9000_0000_0020_0000}
RELATIVE = {ARM64: 1027, RISCV64: 3, LOONGARCH64: 3}
TEXT, STRINGS, TABLES, POINTERS, RELOCATIONS, END = (
    0x1000,
    0x8000,
    0x10000,
    0x30000,
    0x38000,
    0x40000,
)
MEMORY = 0x48000
BANNER = b"Linux version 6.12.9-test (builder@host) (gcc 14) #1 SMP\n\0"
V6, V7 = LAYOUTS[7], LAYOUTS[-1]


@dataclass
class Made:
    """An Image by parts:

    0 header, 0x1000 text, 0x8000 strings, 0x10000 kallsyms, 0x30000 pointers, 0x38000 relocations
    """

    magic: bytes = ARM64
    form: int = Form.NONE
    layout: Layout | None = V6
    base: int = 0
    size: int = MEMORY
    offset: int = 0
    flags: int = 10
    data: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.base = self.base or BASES[self.magic]
        made = random.Random(7)
        self.data = bytearray(made.randbytes(END))
        self.data[:TEXT] = bytes(TEXT)
        struct.pack_into("<8xQQQ", self.data, 0, self.offset, self.size, self.flags)
        self.data[0x38:0x3C] = self.magic
        starts = self._strings()
        self.data[TABLES:END] = bytes(END - TABLES)
        self.pointers = [self.base + made.choice(starts) for _ in range(1500)]
        self.pointers += [self.base + made.randrange(TEXT, STRINGS) // 4 * 4 for _ in range(1500)]
        made.shuffle(self.pointers)
        at = self._kallsyms() if self.layout is not None else 0
        self.slots = {POINTERS + 8 * i: value for i, value in enumerate(self.pointers)}
        if at:
            self.slots[at] = self.base + TEXT
        self.tables = self._relocations()
        if self.form != Form.RELA:
            for slot, value in self.slots.items():
                struct.pack_into("<Q", self.data, slot, value)

    def _strings(self) -> list[int]:
        text, starts = bytearray(BANNER), [STRINGS]
        while len(text) < TABLES - STRINGS - 64:
            starts.append(STRINGS + len(text))
            text += f"message number {len(starts)}".encode()[: 4 + len(starts) % 19] + b"\0"
        self.data[STRINGS:TABLES] = text.ljust(TABLES - STRINGS, b"\0")
        self.data[STRINGS - 1] = 0
        return starts

    def _kallsyms(self) -> int:
        """Place of relative_base, if it has one."""
        assert self.layout is not None
        self.symbols = [(self.base + TEXT + 8 * i, "t", f"function_{i}") for i in range(600)]
        bounds = {"_stext": TEXT, "_etext": 0x6000, "_sinittext": 0x6000, "_einittext": 0x7000}
        self.symbols += [(self.base + at, "T", name) for name, at in bounds.items()]
        self.symbols.sort(key=lambda row: row[0])
        written = write_kallsyms(self.symbols, self.layout, 8, self.base + TABLES)
        self.data[TABLES : TABLES + len(written.data)] = written.data
        at = written.at.get("relative_base", -TABLES)
        if at >= 0:
            self.data[TABLES + at : TABLES + at + 8] = bytes(8)
        return TABLES + at

    def _relocations(self) -> list[tuple[int, int, int]]:
        """(form, file offset, size) as they are laid."""
        rows = sorted(self.slots.items())
        if self.form == Form.RELA:
            # NONE in the middle, as a dropped record leaves it, and before the last, as ld does.
            entries = [(self.base + slot, RELATIVE[self.magic], value) for slot, value in rows]
            entries[5] = entries[9] = (0, 0, 0)
            del self.slots[rows[5][0]], self.slots[rows[9][0]]
            entries += [(0, 0, 0)] * 50 + [(self.base + POINTERS, 5 << 32 | 257, 0)]
            table = b"".join(struct.pack("<QQQ", *entry) for entry in entries)
            self.data = self.data.ljust(RELOCATIONS + len(table) + 256, b"\0")
        elif self.form == Form.RELR:
            table = self._bitmaps([slot for slot, _ in rows])
        else:
            return []
        self.data[RELOCATIONS : RELOCATIONS + len(table)] = table
        return [(self.form, RELOCATIONS, len(table))]

    def _bitmaps(self, slots: list[int]) -> bytes:
        words, at = [], 0
        while at < len(slots):
            words.append(self.base + slots[at])
            place, at = slots[at] + 8, at + 1
            while at < len(slots) and slots[at] < place + 8 * 63:
                bits = 0
                while at < len(slots) and slots[at] < place + 8 * 63:
                    bits |= 2 << (slots[at] - place) // 8
                    at += 1
                words.append(bits | 1)
                place += 8 * 63
        return struct.pack(f"<{len(words)}Q", *words)

    @property
    def array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.frombuffer(bytes(self.data), np.uint8)

    def read(self) -> RawImage:
        return read_raw_image(Path("Image"), self.array)
