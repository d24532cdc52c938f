# SPDX-License-Identifier: MIT
"""A stub: an ELF file with code that sites call, in two segments to insert into other files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import ByteOrder
from ftpatch.elf.dynamic import dynamic_tags
from ftpatch.elf.eh_frame_hdr import read_table
from ftpatch.elf.elf_file import Elf, map_file
from ftpatch.elf.exidx import IN_ROW, moved, read_index
from ftpatch.elf.headers import Segment, Skeleton
from ftpatch.elf.symbols import Symbols, dynamic_symbols, read_symbols
from ftpatch.errors import InputError

__all__ = ["CALLERS", "FLAGS", "RETURNS", "Part", "Stub", "read_stub"]

CALLERS = ("ftrace_caller", "ftrace_regs_caller")
"""A user's functions: with two addresses, and with registers (stubs/include/ftrace_regs.h)."""
RETURNS = ("ftrace_return", "ftrace_regs_return")
"""The functions that go with these, for returns."""
FLAGS = (
    *("-O2", "-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-mgeneral-regs-only"),
    *("-fno-stack-protector", "-fcf-protection=none", "-fvisibility=hidden", "-Wl,-Bsymbolic"),
)
"""Of gcc and clang, to compile and link a user's stub. No function needs to be an indirect branch's
target, and a relocation against a symbol that could be another's would need a dynamic linker."""
HOW = "compile with -fPIC -fvisibility=hidden, link with -shared -nostdlib -Wl,-Bsymbolic"
LINKED = (1, 2, 8, 18, 35)
"""DT_NEEDED, DT_PLTRELSZ, DT_RELASZ, DT_RELSZ, DT_RELRSZ: these need a dynamic linker."""


@dataclass(frozen=True)
class Part:
    """One segment: ``address`` as linked, ``data`` uint8[n] in the file, ``size`` bytes in memory,
    ``flags`` PF_*."""

    address: int
    data: NDArray[np.uint8]
    size: int
    flags: int


@dataclass(frozen=True, kw_only=True)
class Stub:
    """``parts`` by address; the distances between them must not change. ``unwind`` is the address
    of its .eh_frame_hdr, 0 for none; ``frames`` is its .debug_frame; ``further`` are unwinding rows
    of code added to it; ``index`` is the address and size of its exception index, where unwinders
    search that instead, and ``more`` are rows for it."""

    path: Path
    machine: int
    elf_class: int
    order: ByteOrder
    parts: tuple[Part, ...]
    symbols: Symbols
    unwind: int
    frames: bytes
    further: tuple[tuple[int, int], ...] = ()
    index: tuple[int, int] = (0, 0)
    more: tuple[tuple[int, int], ...] = ()

    @property
    def made_for(self) -> tuple[int, int]:
        """e_machine, and 32 or 64."""
        return self.machine, self.elf_class

    def unwind_rows(self) -> tuple[int, NDArray[np.int64]]:
        """Linked addresses of its .eh_frame, and of its functions and their FDEs, int64[n, 2]; 0
        and no rows if it has none."""
        parts = (part for part in self.parts if 0 <= self.unwind - part.address < len(part.data))
        part = next(parts, None)
        if not self.unwind or part is None:
            return 0, np.empty((0, 2), np.int64)
        held = part.data[self.unwind - part.address :]
        frame, rows = read_table(held, self.unwind, str(self.path), self.order)
        return frame, np.concatenate([rows, np.array(self.further, np.int64).reshape(-1, 2)])

    def index_rows(self) -> NDArray[np.int64]:
        """Rows of its exception index, int64[n, 2], with linked addresses (read_index())."""
        start, size = self.index
        part = next((p for p in self.parts if 0 <= start - p.address < len(p.data)), None)
        more = np.array(self.more, np.int64).reshape(-1, 2)
        if not size or part is None:
            return more
        held = part.data[start - part.address :][:size]
        return np.concatenate([read_index(held, start), more])

    def address(self, name: str) -> int | None:
        """Linked address of a symbol."""
        return self.symbols.find(name)

    def callable(self, name: str) -> int | None:
        """The same of a function, with the bit that says in which instruction set it is."""
        rows = self.symbols.rows_named(name)
        return int(self.symbols.value[rows[0]] + self.symbols.mark[rows[0]]) if len(rows) else None

    def beside(self, other: Stub, page: int) -> tuple[Stub, int]:
        """Join two stubs; also return the distance of the other from its link address. Raises
        InputError for a stub of another architecture."""
        if other.made_for != self.made_for:
            raise InputError(other.path, "the stub is for another architecture")
        end = max(part.address + part.size for part in self.parts)
        start = other.parts[0].address // page * page
        shift = (end + page - 1) // page * page - start
        parts = (replace(part, address=part.address + shift) for part in other.parts)
        more = tuple(map(tuple, moved(other.index_rows(), shift).tolist()))
        whole = replace(self, parts=(*self.parts, *parts), more=(*self.more, *more))
        return whole, shift

    def with_data(self, data: bytes, page: int, *, writable: bool = False) -> tuple[Stub, int]:
        """Add data on pages of its own; return the stub and the data's link address."""
        return self._with(data, page, Segment.PF_R | Segment.PF_W * writable)

    def with_code(self, code: bytes, page: int) -> tuple[Stub, int]:
        """Add code on pages of its own; return the stub and the code's link address."""
        return self._with(code, page, Segment.PF_R | Segment.PF_X)

    def holding(self, address: int, data: bytes) -> Stub:
        """Replace the contents at a link address."""
        held = np.frombuffer(data, np.uint8)
        parts = (replace(p, data=held) if p.address == address else p for p in self.parts)
        return replace(self, parts=tuple(parts))

    def knowing(self, rows: Sequence[tuple[int, int]]) -> Stub:
        """Add rows for unwinders: link addresses of a function and its FDE."""
        return replace(self, further=(*self.further, *rows))

    def indexing(self, start: int, word: int) -> Stub:
        """Add a row to its exception index: a link address, and a word that stands there."""
        return replace(self, more=(*self.more, (start, word + IN_ROW)))

    def _with(self, data: bytes, page: int, flags: int) -> tuple[Stub, int]:
        end = max(part.address + part.size for part in self.parts)
        start = (end + page - 1) // page * page
        part = Part(start, np.frombuffer(data, np.uint8), len(data), flags)
        return replace(self, parts=(*self.parts, part)), start


def read_stub(path: Path, *, own: bool = True, needs: Sequence[str] = ("ftrace_caller",)) -> Stub:
    """Read a stub. Raises InputError unless it defines one of the symbols in ``needs`` and works
    without a loader, that is, without relocations and libraries. A user's stub (not ``own``) must
    be a shared object: nothing else is known to be position-independent."""
    data, mapped = map_file(path)
    elf = Elf.read(path, data, mapped=mapped)
    skeleton = elf.skeleton
    symbols = read_symbols(elf)
    if all(symbols.find(name) is None for name in needs):
        raise InputError(path, f"the stub defines no {' or '.join(needs)}")
    tags = dynamic_tags(elf)
    if not own and skeleton.type != Skeleton.ET_DYN:
        raise InputError(path, "the stub is not a shared object", HOW)
    if any(tags.get(tag) for tag in LINKED):
        if missing := _undefined(elf):
            reason = f"the stub needs a dynamic linker for {missing}"
            raise InputError(path, reason, "define it in the stub: there are no libraries")
        raise InputError(path, "the stub needs a dynamic linker", HOW)
    loads = sorted(
        (s for s in skeleton.segments if s.type == Segment.PT_LOAD), key=lambda s: s.address
    )
    parts = []
    for load in loads:
        if load.flags & Segment.PF_X and load.flags & Segment.PF_W:
            raise InputError(path, "a segment of the stub is both writable and executable")
        code = elf.contents(load.offset, load.size, "segment")
        parts.append(Part(load.address, code, load.memory_size, load.flags))
    if not parts:
        raise InputError(path, "the stub has no segments")
    unwind = elf.segment(Segment.PT_GNU_EH_FRAME)
    index = elf.segment(Segment.PT_ARM_EXIDX)
    frames = elf.section(".debug_frame")
    held = elf.contents(frames.offset, frames.size, frames.name).tobytes() if frames else b""
    return Stub(
        path=path,
        machine=skeleton.machine,
        elf_class=skeleton.elf_class,
        order=elf.order,
        parts=tuple(parts),
        symbols=symbols,
        unwind=unwind.address if unwind else 0,
        frames=held,
        index=(index.address, index.size) if index else (0, 0),
    )


def _undefined(elf: Elf) -> str:
    """The first symbol that would come from a library; empty if there is none. Compilers call some,
    such as memcpy, where the source does not."""
    symbols = dynamic_symbols(elf)
    wanted = (symbols.section == Symbols.SHN_UNDEF) & (symbols.bind != Symbols.STB_WEAK)
    wanted &= symbols.name != 0
    return min(symbols.names(np.flatnonzero(wanted)), default="")
