# SPDX-License-Identifier: MIT
"""Bounds of functions, by their symbols and their unwind information.

A stripped program keeps its unwind information, whose search table has every function's start; the
entry behind a row says how long it is.

    FDE   length 4 | CIE pointer 4 | start - . 4 | size 4 | n | n bytes | instructions

(encoding 1b: DW_EH_PE_pcrel | DW_EH_PE_sdata4; augmentation "z...".) Linux Standard Base,
"Exception Frames"; the instructions: DWARF 5, section 6.4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import arch_of
from ftpatch.arch.instruction_set import instruction_set
from ftpatch.arch.returns_twice import SPAN
from ftpatch.core.columns import among
from ftpatch.elf.eh_frame_hdr import read_table
from ftpatch.elf.frame_section import frames_in_section
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import header_field
from ftpatch.elf.symbols import Symbols
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.names.code_sets import CodeSets
from ftpatch.names.function_names import FunctionNames

__all__ = ["Functions", "read_functions"]

ADVANCE, NOP = 0x40, 0
"""DW_CFA_advance_loc in the upper two bits; DW_CFA_nop."""
ADVANCES = (1, 2, 3, 4)
"""DW_CFA_set_loc, DW_CFA_advance_loc1, 2 and 4."""
PART = ".cold"
MAX_FDE_SIZE = 1 << 12
"""Maximum size of an FDE (bytes)."""


@dataclass(frozen=True)
class Functions:
    """n functions by address: ``start`` and ``end`` int64[n], link addresses; ``frame`` int64[n],
    those of their FDEs, 0 for none; ``reach`` int64[n, 2]: the range of text covered by each with
    all those that overlap it. ``resolvers`` are called by the dynamic linker (STT_GNU_IFUNC);
    ``chosen``: what those in a process have chosen, as far as that is known."""

    image: Image
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    frame: NDArray[np.int64]
    reach: NDArray[np.int64]
    resolvers: frozenset[int]
    names: FunctionNames
    chosen: Mapping[int, int] = field(default_factory=dict)

    def around(self, address: int) -> tuple[int, int] | None:
        """Start and end of the function that contains this address, None for none."""
        row = int(np.searchsorted(self.start, address, side="right")) - 1
        if row < 0 or address >= self.end[row]:
            return None
        return int(self.start[row]), int(self.end[row])

    @property
    def arch(self) -> str:
        """The name of the image's architecture; empty if unsupported."""
        skeleton = self.image.elf.skeleton
        found = arch_of(skeleton.machine, skeleton.elf_class)
        return found.name if found else ""

    @cached_property
    def _sets(self) -> CodeSets | None:
        second = instruction_set(self.arch) if self.arch else None
        return CodeSets(second, [table for table, _ in self.names.tables]) if second else None

    def is_second(self, address: int) -> bool | None:
        """Return whether the code at an address is in the machine's second instruction set; None if
        that is not known."""
        return self._sets.is_second(address) if self._sets else False

    def marked(self, address: int) -> int:
        """The address with bit 0 set if it is known to be."""
        return address | int(self.is_second(address) or 0)

    def code_at(self, address: int) -> bytes:
        """Read code from an address to its function's end, limited to what is needed to identify a
        function; empty for anything else. The address may be marked."""
        address &= ~1 if self._sets else ~0
        place = np.array([address & (1 << 64) - 1], np.uint64)
        offset = int(self.image.elf.offset_of(place, executable=True)[0])
        around = self.around(address)
        size = min(SPAN, around[1] - address) if around else SPAN
        return self.image.data[offset : offset + size].tobytes() if offset >= 0 else b""

    def whole(self, address: int) -> tuple[int, int] | None:
        """Like ``around``, including what overlaps it: several symbols may be within one
        function."""
        row = int(np.searchsorted(self.start, address, side="right")) - 1
        if row < 0 or address >= self.reach[row, 1]:
            return None
        return int(self.reach[row, 0]), int(self.reach[row, 1])

    def frame_at(self, address: int) -> int:
        """Link address of the FDE of the function that contains this address, 0 for none."""
        row = int(np.searchsorted(self.start, address, side="right")) - 1
        return int(self.frame[row]) if row >= 0 and address < self.end[row] else 0

    def is_entry(self, address: int) -> bool:
        """Return whether a symbol says that a function begins here, not a part split off from
        one."""
        names = self._names_at(address)
        return bool(names) and not any(PART in name for name in names)

    def _names_at(self, address: int) -> list[str]:
        symbols = self.image.symbols
        here = symbols.value == np.uint64(address & (1 << 64) - 1)
        rows = np.flatnonzero(here & (symbols.type == Symbols.STT_FUNC))
        return list(symbols.names(rows))

    def is_called(self, address: int) -> bool:
        """Return whether code at an address is reached by a call, so that its return address is
        where calls put it. False for the split-off part of a function (.cold), for entry points of
        the kernel, and for the PLT: their unwind information differs from the first byte on."""
        row = int(np.searchsorted(self.start, address))
        if row == len(self.start) or self.start[row] != address:
            return False
        if address == header_field(self.image.elf, "e_entry"):
            return False
        if any(PART in name for name in self._names_at(address)):
            return False
        if not self.frame[row]:
            return True
        offset = int(self.image.elf.offset_of(self.frame[row : row + 1].view(np.uint64))[0])
        length = self.image.elf.order.integer(self.image.data[offset : offset + 4])
        held = self.image.data[offset + 16 : offset + 4 + min(length, MAX_FDE_SIZE)].tobytes()
        at, augmented, shift = 0, 0, 0
        while at < len(held):
            augmented |= (held[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not held[at - 1] & 0x80:
                break
        for code in held[at + augmented :]:
            if code & 0xC0 == ADVANCE or code in ADVANCES:
                return True
            if code != NOP:
                return False
        return True


def read_functions(image: Image) -> Functions:
    """Find the functions of an image. Raises InputError if its unwind information has an unknown
    form and there are no symbols."""
    names = FunctionNames(image)
    symbols = [table for table, _ in names.tables]
    tables = [*map(_of_symbols, symbols), _of_frames(image)]
    named = np.concatenate([np.empty((0, 3), np.int64), *tables[:-1]])[:, 0]
    rows = _from_entries(np.concatenate(tables), named)
    if not len(rows) and image.is_kernel:
        rows = _of_bounds(image.symbols)
    # Of several that begin at one address, the longest; none extends into the next.
    rows = rows[np.lexsort((-rows[:, 1], rows[:, 0]))]
    start, first = np.unique(rows[:, 0], return_index=True)
    end, frame = rows[first, 1], np.zeros(len(start), np.int64)
    np.maximum.at(frame, np.searchsorted(start, rows[:, 0]), rows[:, 2])
    reach = _reach(start, end)
    if len(start):
        end = np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max))
    resolvers = set[int]()
    for table in symbols[:2]:
        resolvers |= set(table.value[table.type == Symbols.STT_GNU_IFUNC].tolist())
    return Functions(
        image=image,
        start=start,
        end=end,
        frame=frame,
        reach=reach,
        resolvers=frozenset(resolvers),
        names=names,
    )


def _from_entries(rows: NDArray[np.int64], named: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same rows, where unwind information that begins behind a function's pad (gcc on
    loongarch64 and s390x) begins with the function: the nearest symbol below that ends where it
    does, if there is no other unwind information for that place. ``named``: starts of symbols."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort((-rows[:, 1], rows[:, 0]))]
    start, first, number = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    end, frame = rows[first, 1], np.maximum.reduceat(rows[:, 2], first)
    symbol, entry = np.isin(start, named), start.copy()
    behind = symbol[:-1] & ~symbol[1:] & (frame[:-1] == 0) & (end[:-1] == end[1:])
    entry[1:][behind] = start[:-1][behind]
    return np.column_stack([entry[number], rows[:, 1:]])


def _reach(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """(start, end) of the ranges that overlapping functions form, for each of these, by address."""
    furthest = np.maximum.accumulate(end)
    first = np.append(True, start[1:] >= furthest[:-1])[: len(start)]
    piece = np.cumsum(first) - 1
    last = np.append(first[1:], True)[: len(start)]
    return np.stack([start[first][piece], furthest[last][piece]], axis=1)


def _of_symbols(symbols: Symbols) -> NDArray[np.int64]:
    """(start, end, 0), int64[n, 3]."""
    wanted = among(symbols.type, (Symbols.STT_FUNC, Symbols.STT_GNU_IFUNC))
    wanted &= (symbols.section != Symbols.SHN_UNDEF) & (symbols.size > 0)
    value = symbols.value[wanted].view(np.int64)
    end = value + symbols.size[wanted].view(np.int64)
    return np.stack([value, end, np.zeros_like(value)], axis=1)


def _of_bounds(symbols: Symbols) -> NDArray[np.int64]:
    """The same of symbols without sizes, as kallsyms has them: up to the next symbol."""
    known = symbols.section != Symbols.SHN_UNDEF
    every = np.unique(symbols.value[known].view(np.int64))
    start = np.unique(symbols.value[known & (symbols.type == Symbols.STT_FUNC)].view(np.int64))
    row = np.searchsorted(every, start, side="right")
    start, row = start[row < len(every)], row[row < len(every)]
    return np.stack([start, every[row], np.zeros_like(start)], axis=1)


def _of_frames(image: Image) -> NDArray[np.int64]:
    """The same from unwind information, with the FDEs' addresses; none without a search table."""
    none = np.empty((0, 3), np.int64)
    own = image.elf.segment(Segment.PT_GNU_EH_FRAME)
    if own is None:
        return frames_in_section(image.elf)
    try:
        held = image.elf.contents(own.offset, own.size, ".eh_frame_hdr")
        _, rows = read_table(held, own.address, str(image.path), image.elf.order)
    except InputError:
        return none
    offsets = image.elf.offset_of(rows[:, 1].view(np.uint64))
    entries, there = image.elf.gather(offsets, 16)
    words = image.elf.order.signed(entries, 4).reshape(-1, 4)
    start = rows[:, 1] + 8 + words[:, 2]
    size = words[:, 3] & 0xFFFF_FFFF
    # With another encoding, the decoded start is not the row's.
    known = there & (offsets >= 0) & (start == rows[:, 0]) & (size > 0)
    return np.stack([rows[known, 0], rows[known, 0] + size[known], rows[known, 1]], axis=1)
