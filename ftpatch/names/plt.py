# SPDX-License-Identifier: MIT
"""Imported functions: the entries of an image's PLT, as symbols named ``open@plt``."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import arch_of, supports
from ftpatch.arch.plt import plt_entries
from ftpatch.core.columns import among
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section
from ftpatch.elf.symbols import Symbols, no_symbols
from ftpatch.image import Image
from ftpatch.names.spelling import PLT

__all__ = ["PLT", "UNHOOKED", "Plt", "plt_symbols", "read_plt"]

UNHOOKED = re.compile(
    "_*(sig)?longjmp(_chk)?|(set|swap)context"  # they go elsewhere; it saves where it returns to
    "|_*exit|_Exit|quick_exit|abort|pthread_exit|thrd_exit"  # do not return
    "|__cxa_(re)?throw|_Unwind_.*|__gcc_personality.*|backtrace"  # unwind from where they return to
    "|_*tls_get_addr"
    "|__(a|hwa|l|m|t|ub)san_.*|__sanitizer_.*"  # report where they return to
)
"""Imported functions whose return address stays as it is."""
MAX_ENTRY_SIZE = 24
"""Size of the longest entry: arm64's with ``bti c`` and ``autia``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plt:
    """The n entries of a PLT: link addresses of their ``start``, ``end``, ``jump`` and ``slot``,
    int64[n], and their ``names``, as imported."""

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    jump: NDArray[np.int64]
    slot: NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Plt:
        """Return the entries of a mask or an index."""
        names = np.array(self.names, object)[rows]
        return Plt(
            start=self.start[rows],
            end=self.end[rows],
            jump=self.jump[rows],
            slot=self.slot[rows],
            names=tuple(names.tolist()),
        )


def plt_symbols(image: Image) -> Symbols:
    """One symbol for each entry of the image's PLT."""
    plt = read_plt(image)
    if not len(plt):
        return no_symbols(image.path)
    names = [f"{name}{PLT}".encode() + b"\0" for name in plt.names]
    offsets = np.cumsum([1, *map(len, names)])[:-1]  # a table begins with an empty name
    count = len(plt)
    return Symbols(
        value=plt.start.view(np.uint64),
        size=(plt.end - plt.start).view(np.uint64),
        type=np.full(count, Symbols.STT_FUNC, np.uint8),
        bind=np.zeros(count, np.uint8),
        section=np.full(count, Symbols.SHN_ABS, np.uint16),
        name=offsets.astype(np.uint32),
        strings=np.frombuffer(b"\0" + b"".join(names), np.uint8),
        path=image.path,
    )


def read_plt(image: Image) -> Plt:
    """Read the entries whose slot a relocation fills with an import; none for architectures, or
    files, whose entries are of an unknown form."""
    elf, imported = image.elf, image.dynamic_symbols
    none = np.empty(0, np.int64)
    arch = arch_of(elf.skeleton.machine, elf.skeleton.elf_class)
    sections = [s for s in elf.sections if s.type == Section.SHT_PROGBITS]
    if arch is None or not supports(arch.name, "plt") or not len(imported):
        return Plt(start=none, end=none, jump=none, slot=none, names=())
    start, jump, slot, end = none, none, none, none
    got = dynamic_tags(elf).get(Tag.PLTGOT, 0)
    for section in (one for one in sections if one.name in arch.plt_sections):
        code = elf.contents(section.offset, section.size, section.name)
        if len(code) <= MAX_ENTRY_SIZE // 4 or not _is_mapped(elf, section):
            continue
        found = plt_entries(arch.name, code, section.address, section.entsize, got)
        order = np.argsort(found[0], kind="stable")
        until = np.append(found[0][order], section.address + section.size)[1:]
        start = np.append(start, found[0][order])
        jump = np.append(jump, found[1][order])
        slot = np.append(slot, found[2][order])
        end = np.append(end, np.minimum(until, found[0][order] + MAX_ENTRY_SIZE))
    rows = image.relocations
    filled = np.flatnonzero(among(rows.type, arch.got) & (rows.symbol < len(imported)))
    filled = filled[np.argsort(rows.place[filled], kind="stable")]
    place = rows.place[filled].view(np.int64)
    at = np.minimum(np.searchsorted(place, slot), max(len(place) - 1, 0))
    known = np.flatnonzero(place[at] == slot) if len(place) else np.empty(0, np.intp)
    _, first = np.unique(start[known], return_index=True)
    known = known[first]
    symbol = rows.symbol[filled][at[known]].astype(np.intp)
    return Plt(
        start=start[known],
        end=end[known],
        jump=jump[known],
        slot=slot[known],
        names=tuple(imported.names(symbol)),
    )


def _is_mapped(elf: Elf, section: Section) -> bool:
    """Return whether a segment has the section's code where its header says."""
    first, last = section.address, section.address + section.size - 1
    if last >= 1 << 63:
        return False
    offsets = elf.offset_of(np.array([first, last], np.uint64), executable=True)
    return bool((offsets - section.offset == [0, section.size - 1]).all())
