# SPDX-License-Identifier: MIT
"""The text of a kernel in a core, beside that of its vmlinux: what patchers look at.

    was   bytes of the file, and of each place that was settled, what stands there
    now   bytes in memory

What differs in the end is not explained. Bytes that the core does not have are as in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.contract import U8, U64
from ftpatch.elf.btf import Struct
from ftpatch.errors import InputError
from ftpatch.kcore.in_core import InCore
from ftpatch.kcore.lists import Memory

__all__ = ["Text"]

WORD = 8


@dataclass(frozen=True)
class _Fields:
    """A table of structures: its bytes, uint8[n, size], and where it begins; ``path`` and ``name``:
    of the BTF and of the structure. Raises InputError for members that it does not have."""

    rows: U8
    start: int
    struct: Struct
    path: Path
    name: str

    def __len__(self) -> int:
        return len(self.rows)

    def at(self, offset: int, dtype: str) -> NDArray[np.int64]:
        width = np.dtype(dtype).itemsize
        if offset + width > self.rows.shape[1]:
            raise InputError(self.path, f"in its BTF, struct {self.name} is too short")
        part = np.ascontiguousarray(self.rows[:, offset : offset + width])
        return part.view(dtype)[:, 0].astype(np.int64)

    def offset(self, name: str) -> int:
        if name not in self.struct.offset:
            raise InputError(self.path, f"its BTF has no struct {self.name} with {name}")
        return self.struct.offset[name]

    def column(self, name: str, dtype: str) -> NDArray[np.int64]:
        return self.at(self.offset(name), dtype)

    def address(self, name: str, dtype: str = "<i4") -> U64:
        own = np.arange(len(self), dtype=np.uint64) * np.uint64(self.struct.size)
        own += np.uint64(self.start + self.offset(name))
        return own + self.column(name, dtype).view(np.uint64)


class Text:
    """Both texts, and which differences are explained; see PatchedText."""

    def __init__(self, kernel: InCore, memory: Memory) -> None:
        self.kernel, self.memory = kernel, memory
        self.bias = kernel.bias
        image, parts = kernel.image, kernel.parts
        slices = [slice(part.offset, part.offset + part.size) for part in parts]
        self._now = np.concatenate([image.data[part] for part in slices])
        self._was = np.concatenate([kernel.file.data[part] for part in slices])
        self._amiss = np.zeros(len(self._now), bool)
        self._starts = np.array([part.address for part in parts], np.uint64)
        self._sizes = np.array([part.size for part in parts], np.int64)
        self._bases = np.concatenate([[0], np.cumsum(self._sizes)[:-1]])

    def place(self, at: U64, width: int = 1) -> NDArray[np.int64]:
        """Index of each address, int64[n]; -1 where not all of its bytes are text."""
        part = np.searchsorted(self._starts, at, side="right") - 1
        row = np.maximum(part, 0)
        into = (at - self._starts[row]).view(np.int64)
        good = (part >= 0) & (into >= 0) & (into + width <= self._sizes[row])
        return np.where(good, self._bases[row] + into, -1)

    def inside(self, at: U64) -> NDArray[np.bool_]:
        """See PatchedText, as for all of the following."""
        return np.asarray(self.place(at) >= 0)

    def address(self, index: NDArray[np.int64]) -> U64:
        """Link addresses of indices."""
        part = np.searchsorted(self._bases, index, side="right") - 1
        found: U64 = self._starts[part] + (index - self._bases[part]).astype(np.uint64)
        return found

    def compiled(self, at: U64, width: int) -> U8:
        return self._gather(self._was, at, width)

    def now(self, at: U64, width: int) -> U8:
        return self._gather(self._now, at, width)

    def _gather(self, data: U8, at: U64, width: int) -> U8:
        index = self.place(at)[:, None] + np.arange(width)
        good = (self.place(at) >= 0)[:, None] & (index < len(data))
        return np.where(good, data[np.where(good, index, 0)], 0).astype(np.uint8)

    def differing(self) -> U64:
        return self.address(np.flatnonzero((self._was != self._now) | self._amiss))

    def settle(
        self, at: U64, width: NDArray[np.int64], *forms: U8, only: bool = False
    ) -> NDArray[np.bool_]:
        found = np.zeros(len(at), bool)
        if not len(at):
            return found
        widest = int(width.max())
        now = self.now(at, widest)
        inside = self.inside(at) & self.inside(at + (width - 1).astype(np.uint64))
        beyond = np.arange(widest) >= width[:, None]
        for form in forms:
            full = np.zeros((len(at), widest), np.uint8)
            full[:, : form.shape[1]] = form[:, :widest]
            found |= ((full == now) | beyond).all(axis=1)
        found &= inside
        index = (self.place(at)[:, None] + np.arange(widest))[found[:, None] & ~beyond]
        self._was[index] = self._now[index]
        self._amiss[index] = False
        if only:
            rows = inside & ~found
            index = (self.place(at)[:, None] + np.arange(widest))[rows[:, None] & ~beyond]
            self._amiss[index] = True
        return found

    def accept(self, at: int, size: int) -> None:
        index = int(self.place(np.array([at], np.uint64), size)[0])
        if index >= 0:
            self._was[index : index + size] = self._now[index : index + size]
            self._amiss[index : index + size] = False

    def reject(self, at: int, size: int) -> None:
        index = int(self.place(np.array([at], np.uint64), size)[0])
        if index >= 0:
            self._amiss[index : index + size] = True

    def find(self, name: str) -> int:
        return self._symbols.get(name, 0)

    def names(self, prefix: str) -> list[str]:
        return [name.removeprefix(prefix) for name in self._symbols if name.startswith(prefix)]

    @cached_property
    def _symbols(self) -> dict[str, int]:
        """Addresses by name; of equal names the first has it."""
        symbols = self.kernel.file.symbols
        rows = np.flatnonzero(symbols.section != symbols.SHN_UNDEF)[::-1]
        return dict(zip(symbols.names(rows), symbols.value[rows].tolist(), strict=True))

    def word(self, address: int) -> int:
        held = self.number(address, WORD)
        return self.kernel.below(held) if held else 0

    def number(self, address: int, size: int) -> int:
        return self.kernel.core.word(self.kernel.above(address), size) or 0

    def sections(self, prefix: str) -> list[str]:
        return [s.name for s in self.kernel.file.elf.sections if s.name.startswith(prefix)]

    def offsets(self, section: str) -> U64:
        start, data = self._contents(section, "")
        rel = np.frombuffer(data, "<i4", len(data) // 4)
        own = np.uint64(start) + 4 * np.arange(len(rel), dtype=np.uint64)
        return own + rel.astype(np.int64).view(np.uint64)

    def table(self, begin: str, end: str, struct: str, members: Sequence[str]) -> _Fields:
        start, data = self._contents(begin, end)
        path = self.kernel.path
        if not data:
            none = Struct(WORD, dict.fromkeys(members, 0))
            return _Fields(np.zeros((0, WORD), np.uint8), 0, none, path, struct)
        layout = self.memory.btf.require(struct, *members)
        number = len(data) // layout.size
        rows = np.frombuffer(data, np.uint8, number * layout.size).reshape(number, layout.size)
        return _Fields(rows, start, layout, path, struct)

    def _contents(self, begin: str, end: str) -> tuple[int, bytes]:
        """Address and bytes of a section, or of what is between two symbols, in the file."""
        if not end:
            section = self.kernel.file.elf.section(begin)
            if section is None:
                return 0, b""
            return section.address, self.file_code(section.address, section.size)
        first, last = self.find(begin), self.find(end)
        return first, self.file_code(first, last - first) if 0 < first < last else b""

    def file_code(self, at: int, size: int) -> bytes:
        elf = self.kernel.file.elf
        offset = int(elf.offset_of(np.array([at], np.uint64))[0])
        return elf.data[offset : offset + size].tobytes() if offset >= 0 else b""

    def file_rows(self, at: U64, width: int) -> U8:
        elf = self.kernel.file.elf
        return elf.gather(elf.offset_of(at), width)[0]

    def linked(self, at: U64) -> U64:
        relocations = self.kernel.file.relocations
        row = relocations.at(at, (self.kernel.sites_of_file.arch.relative,))
        value = relocations.addend[np.maximum(row, 0)].astype(np.int64).view(np.uint64)
        return np.where(row >= 0, value, np.uint64(0))
