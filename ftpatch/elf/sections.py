# SPDX-License-Identifier: MIT
"""Section headers of a file being built, and what is appended to it.

A section that must grow is appended to the file as a whole, and its header points there; the old
bytes stay in place. An additional section takes a new header table:

    | Ehdr | sections ... | Shdr... | (journals) |  .rela.text, longer | .symtab | Shdr... |
      e_shoff, e_shnum                              ^ sh_offset, sh_size

System V ABI, chapter 4, "Sections".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.columns import addresses, stacked
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section
from ftpatch.elf.segments import header_field
from ftpatch.errors import InputError

__all__ = ["Headers", "Tail"]

_FIELDS = ("name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "entsize")
_ROW = {
    8: np.dtype(
        list(zip(_FIELDS, ["<u4"] * 2 + ["<u8"] * 4 + ["<u4"] * 2 + ["<u8"] * 2, strict=True))
    ),
    4: np.dtype([(name, "<u4") for name in _FIELDS]),
}
E_SHOFF = {8: 40, 4: 32}
"""File offset of e_shoff, an address-sized number."""
E_SHNUM = {8: 60, 4: 48}
"""File offset of e_shnum, two bytes."""
MAX_SECTIONS = 0xFEFF
"""Maximum number of sections in e_shnum (SHN_LORESERVE - 1)."""


class Tail:
    """Bytes to append to a file; ``start`` is the file offset of the first."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray()

    def append(self, data: bytes, align: int = 8) -> int:
        """Append ``data``, aligned, and return its file offset."""
        self.data += bytes(-(self.start + len(self.data)) % align)
        at = self.start + len(self.data)
        self.data += data
        return at


class Headers:
    """The section headers of ``elf``, editable; what grows goes to ``tail``."""

    def __init__(self, elf: Elf, tail: Tail) -> None:
        self.elf = elf
        self.tail = tail
        kind = elf.order.record(_ROW[elf.word])
        self.at = elf.skeleton.section_headers
        held = elf.contents(self.at, len(elf.sections) * kind.itemsize, "section headers")
        self.before = np.frombuffer(held.tobytes(), kind)
        self.rows = self.before.copy()
        self._moved: dict[int, bytes] = {}

    def contents(self, section: Section) -> bytes:
        """Read a section's contents from the file, or what they were replaced by."""
        if section.index in self._moved:
            return self._moved[section.index]
        return self.elf.contents(section.offset, section.size, section.name).tobytes()

    def resize(self, index: int, size: int) -> None:
        """Shrink a section (or restore its size)."""
        self.rows["size"][index] = size

    def move(self, index: int, data: bytes) -> None:
        """Replace a section's contents by ``data``."""
        self.rows["offset"][index] = self.tail.append(data)
        self.rows["size"][index] = len(data)
        self._moved[index] = data

    def add(self, like: Section, data: bytes, info: int) -> None:
        """Add a section of the same kind as ``like``, with another sh_info."""
        if len(self.rows) > MAX_SECTIONS:
            raise InputError(self.elf.path, f"{len(self.rows)} sections, and no room for another")
        row = self.before[like.index].copy()
        row["offset"], row["size"], row["info"] = self.tail.append(data), len(data), info
        self.rows = stacked(self.rows, row)

    def append(self, name: int, kind: int, data: bytes, align: int = 8, **fields: int) -> int:
        """Add a section, not loaded unless its other ``fields`` say so, and return its index;
        ``name`` is the offset of its name."""
        if len(self.rows) > MAX_SECTIONS:
            raise InputError(self.elf.path, f"{len(self.rows)} sections, and no room for another")
        row = np.zeros((), self.rows.dtype)
        row["name"], row["type"], row["align"] = name, kind, align
        row["offset"], row["size"] = self.tail.append(data, align), len(data)
        for field, value in fields.items():
            row[field] = value
        self.rows = stacked(self.rows, row)
        return len(self.rows) - 1

    def names(self, *texts: str) -> list[int]:
        """Add names of sections and return their offsets; none if the file's table of them is
        missing, or not NUL-terminated."""
        index = header_field(self.elf, "e_shstrndx")
        if not 0 < index < len(self.elf.sections):
            return []
        table = self.elf.sections[index]
        if table.type != Section.SHT_STRTAB or table.offset + table.size > len(self.elf.data):
            return []
        held = self.contents(table)
        if not held or held[-1]:
            return []
        offsets = []
        for text in texts:
            offsets.append(len(held))
            held += text.encode() + b"\0"
        self.move(index, held)
        return offsets

    def changes(self) -> Changes:
        """Return everything as Changes of headers; a longer table goes to the tail."""
        word = self.elf.word
        count = len(self.before)
        old, new = (_bytes(rows) for rows in (self.before, self.rows))
        if len(self.rows) == count:
            place = self.at + np.arange(count, dtype=np.int64) * old.shape[1]
            return Changes.of(Kind.HEADER, place, old, new, NO_OWNER).effective()
        at = self.tail.append(self.rows.tobytes())
        return Changes.concat(
            [
                self._number(E_SHOFF[word], word, self.at, at),
                self._number(E_SHNUM[word], 2, count, len(self.rows)),
            ]
        )

    def _number(self, offset: int, size: int, old: int, new: int) -> Changes:
        before, after = (self.elf.order.rows(addresses(value), size) for value in (old, new))
        return Changes.of(Kind.HEADER, np.array([offset], np.int64), before, after, NO_OWNER)


def _bytes(rows: NDArray[np.void]) -> NDArray[np.uint8]:
    return np.frombuffer(rows.tobytes(), np.uint8).reshape(len(rows), rows.dtype.itemsize)
