# SPDX-License-Identifier: MIT
"""Symbol tables as columns (System V ABI, chapter 4, "Symbol Table")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.instruction_set import marks_functions
from ftpatch.core.columns import among
from ftpatch.elf.dynamic import Tag, dynamic_tags, offset_of_tag
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section
from ftpatch.errors import InputError

__all__ = ["Symbols", "dynamic_symbols", "no_symbols", "read_symbols"]

MAX_NAMES = 1 << 24
"""Maximum total length of names from a small string table. Entries may share one long string."""
_ENTRY = {
    8: np.dtype(
        {
            "names": ["name", "info", "other", "shndx", "value", "size"],
            "formats": ["<u4", "u1", "u1", "<u2", "<u8", "<u8"],
        }
    ),
    4: np.dtype(
        {
            "names": ["name", "value", "size", "info", "other", "shndx"],
            "formats": ["<u4", "<u4", "<u4", "u1", "u1", "<u2"],
        }
    ),
}


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """n symbols: ``value`` and ``size`` uint64[n] (virtual address, bytes), ``type`` (STT_*) and
    ``bind`` (STB_*) uint8[n], ``section`` uint16[n], ``name`` uint32[n] (offset in ``strings``,
    uint8[m], the string table), ``other`` uint8[n] (st_other; 0 where the source has none),
    ``mark`` uint8[n] (1 for a function in its machine's second instruction set, whose value is
    without the bit that says so)."""

    value: NDArray[np.uint64]
    size: NDArray[np.uint64]
    type: NDArray[np.uint8]
    bind: NDArray[np.uint8]
    section: NDArray[np.uint16]
    name: NDArray[np.uint32]
    strings: NDArray[np.uint8]
    path: Path
    ranked: bool = False
    """True if symbols of equal address are in kallsyms' order already."""
    st_other: NDArray[np.uint8] | None = None
    marks: NDArray[np.uint8] | None = None

    STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE, STT_TLS = 1, 2, 3, 4, 6
    STT_GNU_IFUNC = 10
    STB_WEAK = 2
    SHN_UNDEF, SHN_ABS = 0, 0xFFF1
    EXTERNAL = 0xFF3F
    """Our own (SHN_HIOS), for symbols that a relocatable file leaves undefined. Livepatches use
    SHN_LOOS, for what is resolved later still."""

    def __len__(self) -> int:
        return len(self.value)

    @property
    def other(self) -> NDArray[np.uint8]:
        """st_other, uint8[n]; 0 where the source of the symbols has none."""
        return np.zeros(len(self), np.uint8) if self.st_other is None else self.st_other

    @property
    def mark(self) -> NDArray[np.uint8]:
        """1 for a function in the second instruction set, uint8[n]."""
        return np.zeros(len(self), np.uint8) if self.marks is None else self.marks

    @cached_property
    def _text(self) -> bytes:
        return self.strings.tobytes()

    @cached_property
    def _ends(self) -> NDArray[np.intp]:
        """End of each string of the table."""
        return np.flatnonzero(self.strings == 0)

    def lengths(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """Lengths of the rows' names in bytes, int64[m]; 0 for an offset outside the table."""
        start = self.name[rows].astype(np.int64)
        at = np.searchsorted(self._ends, start)
        end = np.append(self._ends, 0)[at]
        return np.maximum(end - start, 0)

    def blob(self, rows: NDArray[np.intp]) -> bytes:
        """Concatenate the rows' names, each NUL-terminated. Raises InputError if they add up to
        more than any image has."""
        length = self.lengths(rows) + 1
        stop = np.cumsum(length)
        total = int(stop[-1]) if len(stop) else 0
        if total > max(MAX_NAMES, 4 * len(self.strings)):
            raise InputError(self.path, f"its symbol names total {total} bytes")
        at = np.arange(total) + np.repeat(
            self.name[rows].astype(np.int64) - (stop - length), length
        )
        strings = self.strings if len(self.strings) else np.zeros(1, np.uint8)
        text = strings[np.minimum(at, len(strings) - 1)]
        text[stop - 1] = 0
        return bytes(text.tobytes())

    def begin(self, rows: NDArray[np.intp], prefixes: Sequence[bytes]) -> NDArray[np.bool_]:
        """Test which rows' names begin with any of the prefixes, bool[m]."""
        longest = max(map(len, prefixes))
        strings = np.append(self.strings, np.zeros(longest, np.uint8))
        at = np.minimum(self.name[rows].astype(np.int64), len(self.strings))
        head = strings[at[:, None] + np.arange(longest)]
        out = np.zeros(len(rows), bool)
        for prefix in prefixes:
            out |= (head[:, : len(prefix)] == np.frombuffer(prefix, np.uint8)).all(axis=1)
        return out

    def names(self, rows: NDArray[np.intp]) -> list[str]:
        """The rows' names; bytes that are not UTF-8 are escaped as ``\\xNN``."""
        blob = self.blob(rows).decode("utf-8", "backslashreplace")
        return blob.split("\0")[:-1]

    def rows_named(self, name: str, *, defined: bool = True) -> NDArray[np.intp]:
        """Rows of the symbols of that name: those that this image defines, or all. Suffixes may be
        shared, so the string is searched for wherever it ends."""
        wanted, starts = name.encode("utf-8", "surrogatepass") + b"\0", []
        at = self._text.find(wanted)
        while at >= 0:
            starts.append(at)
            at = self._text.find(wanted, at + 1)
        rows = np.zeros(len(self), bool)
        for start in starts:
            rows |= self.name == start
        return np.flatnonzero(rows & (self.section != self.SHN_UNDEF) if defined else rows)

    def find(self, name: str) -> int | None:
        """Find the address of the first defined symbol of that name."""
        rows = self.rows_named(name)
        return int(self.value[rows[0]]) if len(rows) else None


def read_symbols(elf: Elf) -> Symbols:
    """Read .symtab; in a stripped file .dynsym; without section headers what PT_DYNAMIC refers to.

    Raises InputError if the table or its strings are outside the file.
    """
    for kind in (Section.SHT_SYMTAB, Section.SHT_DYNSYM):
        found = next((s for s in elf.sections if s.type == kind), None)
        if found is None:
            continue
        if found.link >= len(elf.sections):
            raise InputError(elf.path, f"symbol table {found.name}: no section {found.link}")
        strings = elf.sections[found.link]
        return _table(elf, found.offset, found.size, strings.offset, strings.size)
    return dynamic_symbols(elf)


def dynamic_symbols(elf: Elf) -> Symbols:
    """Read the symbols that dynamic relocations refer to; empty if there are none."""
    if elf.sections:
        found = next((s for s in elf.sections if s.type == Section.SHT_DYNSYM), None)
        if found is None or found.link >= len(elf.sections):
            return _table(elf, 0, 0, 0, 0)
        strings = elf.sections[found.link]
        return _table(elf, found.offset, found.size, strings.offset, strings.size)
    tags = dynamic_tags(elf)
    table, strings_at = offset_of_tag(elf, tags, Tag.SYMTAB), offset_of_tag(elf, tags, Tag.STRTAB)
    if table < 0 or strings_at <= table:
        return _table(elf, 0, 0, 0, 0)
    # No header counts the dynamic symbols; link editors place the strings right after them.
    return _table(elf, table, strings_at - table, strings_at, tags.get(Tag.STRSZ, 0))


def no_symbols(path: Path) -> Symbols:
    """An empty symbol table."""
    empty = np.empty(0, np.uint64)
    byte, half = np.empty(0, np.uint8), np.empty(0, np.uint16)
    return Symbols(
        value=empty,
        size=empty,
        type=byte,
        bind=byte,
        section=half,
        name=np.empty(0, np.uint32),
        strings=byte,
        path=path,
    )


def _table(elf: Elf, offset: int, size: int, strings_at: int, strings_size: int) -> Symbols:
    entry = elf.order.record(_ENTRY[elf.word])
    count = size // entry.itemsize
    raw = elf.contents(offset, count * entry.itemsize, "symbol table")
    strings = elf.contents(strings_at, strings_size, "string table")
    table = np.frombuffer(raw, entry)
    value, kind = table["value"].astype(np.uint64), table["info"] & np.uint8(0xF)
    marks = None
    if marks_functions(elf.skeleton.machine, elf.skeleton.elf_class):
        function = among(kind, (Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC))
        marks = (function & (value % np.uint64(2) == 1)).astype(np.uint8)
        value -= marks
    return Symbols(
        value=value,
        size=table["size"].astype(np.uint64),
        type=kind,
        bind=table["info"] >> np.uint8(4),
        section=table["shndx"].astype(np.uint16),
        name=table["name"].astype(np.uint32),
        strings=strings,
        path=elf.path,
        st_other=table["other"],
        marks=marks,
    )
