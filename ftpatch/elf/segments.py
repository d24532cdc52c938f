# SPDX-License-Identifier: MIT
"""The program header table, rewritten (System V ABI, chapter 5, "Program Header").

    | Ehdr | Phdr... | sections ... |  hole  | Phdr... + the new ones | stub's text | stub's data |
      e_phoff, e_phnum, e_entry               ^ e_phoff

The first new PT_LOAD begins with the table, so that a program finds its own headers in memory
(AT_PHDR).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.columns import addresses, stacked
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError

__all__ = ["ProgramHeaders", "header_field"]

_COLUMNS = {
    8: ["type", "flags", "offset", "vaddr", "paddr", "filesz", "memsz", "align"],
    4: ["type", "offset", "vaddr", "paddr", "filesz", "memsz", "flags", "align"],
}
_ROW = {
    8: np.dtype([(n, "<u4" if n in ("type", "flags") else "<u8") for n in _COLUMNS[8]]),
    4: np.dtype([(n, "<u4") for n in _COLUMNS[4]]),
}
_FIELD = {"e_entry": {8: (24, 8), 4: (24, 4)}, "e_phoff": {8: (32, 8), 4: (28, 4)}}
_FIELD["e_flags"] = {8: (48, 4), 4: (36, 4)}
_FIELD["e_phentsize"] = {8: (54, 2), 4: (42, 2)}
_FIELD["e_phnum"] = {8: (56, 2), 4: (44, 2)}
_FIELD["e_shstrndx"] = {8: (62, 2), 4: (50, 2)}
"""(file offset, bytes) of fields of the ELF header."""
MAX_HEADERS = 0xFFFE
"""Maximum number of program headers in e_phnum (PN_XNUM - 1)."""


def header_field(elf: Elf, name: str) -> int:
    """Read a field of the ELF header."""
    offset, size = _FIELD[name][elf.word]
    return elf.order.integer(elf.data[offset : offset + size])


class ProgramHeaders:
    """The program headers of ``elf``, editable: ``rows`` is a structured array with the fields of
    Elf32_Phdr or Elf64_Phdr."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self.word = elf.word
        kind = elf.order.record(_ROW[self.word])
        count = header_field(elf, "e_phnum")
        if header_field(elf, "e_phentsize") != kind.itemsize or not 0 < count <= MAX_HEADERS:
            raise InputError(elf.path, "its program headers do not have the ABI's size")
        held = elf.contents(header_field(elf, "e_phoff"), count * kind.itemsize, "program headers")
        self.before: NDArray[np.void] = np.frombuffer(held.tobytes(), kind)
        self.rows = self.before.copy()

    @property
    def loads(self) -> NDArray[np.void]:
        """The PT_LOADs, in order."""
        return np.asarray(self.rows[self.rows["type"] == Segment.PT_LOAD])

    def add(self, kind: int, **fields: int) -> None:
        """Add one; a PT_LOAD goes after the others, since they must be sorted by address."""
        row = np.zeros(1, self.rows.dtype)
        row["type"] = kind
        for name, value in fields.items():
            row[name] = value
        last = np.flatnonzero(self.rows["type"] == Segment.PT_LOAD)
        at = int(last[-1]) + 1 if kind == Segment.PT_LOAD and len(last) else len(self.rows)
        self.rows = stacked(self.rows[:at], row, self.rows[at:])
        if len(self.rows) > MAX_HEADERS:
            raise InputError(self.elf.path, "no room for more program headers")

    def table(self, offset: int, address: int) -> bytes:
        """Build the table for this file offset and address."""
        own = self.rows["type"] == Segment.PT_PHDR
        self.rows["offset"][own] = offset
        for name in ("vaddr", "paddr"):
            self.rows[name][own] = address
        for name in ("filesz", "memsz"):
            self.rows[name][own] = self.rows.nbytes
        return self.rows.tobytes()

    def in_place(self) -> Changes:
        """Change the table where it is: it has as many rows as before."""
        size = self.rows.dtype.itemsize
        old, new = (
            np.frombuffer(rows.tobytes(), np.uint8).reshape(-1, size)
            for rows in (self.before, self.rows)
        )
        place = header_field(self.elf, "e_phoff") + np.arange(len(old), dtype=np.int64) * size
        return Changes.of(Kind.HEADER, place, old, new, NO_OWNER).effective()

    def changes(self, offset: int, entry: int | None) -> Changes:
        """Change the ELF header for a table at ``offset``, and the entry point to ``entry``."""
        wanted = {"e_phoff": offset, "e_phnum": len(self.rows)}
        if entry is not None:
            wanted["e_entry"] = entry
        return Changes.concat(self._field(name, value) for name, value in wanted.items())

    def _field(self, name: str, value: int) -> Changes:
        offset, size = _FIELD[name][self.word]
        old, new = (
            self.elf.order.rows(addresses(number), size)
            for number in (header_field(self.elf, name), value)
        )
        return Changes.of(Kind.HEADER, np.array([offset], np.int64), old, new, NO_OWNER)
