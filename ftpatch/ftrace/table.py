# SPDX-License-Identifier: MIT
"""The table: its place, and its records with their relocations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch import Arch
from ftpatch.core.columns import addresses
from ftpatch.elf.headers import Section
from ftpatch.elf.relocatable import NOWHERE
from ftpatch.elf.relocations import Form
from ftpatch.errors import InputError
from ftpatch.image import Image

__all__ = ["NAMES", "Span", "Table", "read_table", "table_span"]

NAMES = ("__mcount_loc", "__patchable_function_entries")
"""Sections of the table, in order of preference: where an x86 kernel has both, the second also
lists functions that are not traced."""


@dataclass(frozen=True, slots=True)
class Span:
    """A table's place: name, (virtual address, file offset, size in bytes) of each part."""

    name: str
    parts: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """n records in the order of the table.

    ``slot`` uint64[n] (virtual address), ``offset`` int64[n] (file offset), ``raw`` uint64[n] (the
    word in the file), ``value`` uint64[n] (the record, after relocation to the linked address),
    ``relocation`` int64[n]: row in the image's relocations, -1 where the word stands as it is.
    """

    slot: NDArray[np.uint64]
    offset: NDArray[np.int64]
    raw: NDArray[np.uint64]
    value: NDArray[np.uint64]
    relocation: NDArray[np.int64]


def table_span(image: Image, arch: Arch) -> Span | None:
    """Find the table where the image itself names it: by section, or, in a linked kernel, by
    ``__start_mcount_loc`` and ``__stop_mcount_loc``. Raises InputError for an impossible place.
    """
    spans = []
    for name in arch.module_tables if image.is_module else NAMES:
        found = [s for s in image.elf.sections if s.name == name]
        if found:
            image.elf.bounded(f"tables {name}", (s.size for s in found))
            if any(s.type == Section.SHT_NOBITS for s in found):
                raise InputError(image.path, f"table {name} has no bytes in this file")
            if image.is_module:
                found = found[:1]  # find_sec() in kernel/module/main.c returns the first
            spans.append(Span(name, tuple((s.address, s.offset, s.size) for s in found)))
            if image.has_table:
                break
        if name == NAMES[0] and image.is_kernel:
            start = image.symbols.find("__start_mcount_loc")
            stop = image.symbols.find("__stop_mcount_loc")
            if start is not None and stop is not None:
                return _between(image, start, stop)
    if len(spans) < 2:
        return spans[0] if spans else None
    # A program may be linked from objects compiled in both ways. If the second table lists a
    # record of the first, it does not cover other functions but a superset.
    first, second = (read_table(image, arch, span).value for span in spans)
    if np.isin(second, first[first != 0]).any():
        return spans[0]
    name = ",".join(span.name for span in spans)
    return Span(name, tuple(part for span in spans for part in span.parts))


def _between(image: Image, start: int, stop: int) -> Span:
    if stop < start:
        raise InputError(
            image.path, f"__stop_mcount_loc {stop:#x} precedes __start_mcount_loc {start:#x}"
        )
    ends = image.elf.offset_of(addresses(start, max(stop - 1, start)))
    size = stop - start
    if size and ((ends < 0).any() or ends[1] - ends[0] != size - 1):
        raise InputError(image.path, f"the table from {start:#x} to {stop:#x} is not in the file")
    return Span(NAMES[0], ((start, max(int(ends[0]), 0), size),))


def read_table(image: Image, arch: Arch, span: Span) -> Table:
    """The records. Raises InputError for a table outside the file or of a broken size."""
    word = image.elf.word
    slots: list[NDArray[np.uint64]] = []
    offsets: list[NDArray[np.int64]] = []
    raws: list[NDArray[np.uint64]] = []
    for address, offset, size in span.parts:
        if size % word:
            raise InputError(
                image.path,
                f"table {span.name}: {size} bytes are not a multiple of the word size ({word})",
            )
        held = image.elf.contents(offset, size, f"table {span.name}")
        step = np.arange(size // word, dtype=np.int64) * word
        slots.append(np.uint64(address) + step.astype(np.uint64))
        offsets.append(offset + step)
        raws.append(image.elf.order.unsigned(held, word))
    slot = np.concatenate([np.zeros(0, np.uint64), *slots])
    raw = np.concatenate([np.zeros(0, np.uint64), *raws])
    if image.is_relocatable:
        row, value = _relocatable(image, arch, slot, raw)
    else:
        row, value = _linked(image, arch, slot, raw)
    return Table(
        slot=slot,
        offset=np.concatenate([np.zeros(0, np.int64), *offsets]),
        raw=raw,
        value=value,
        relocation=row,
    )


def _linked(
    image: Image, arch: Arch, slot: NDArray[np.uint64], raw: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Rows of the RELATIVE relocations of a linked file's slots, and the resulting values. A word
    without a relocation, or with one whose addend is in place, stands for itself."""
    relocations = image.relocations
    row = relocations.at(slot, (arch.relative,))
    addend = (
        (row >= 0) & (relocations.form[row] == Form.RELA)
        if len(relocations.form)
        else np.zeros(len(row), bool)
    )
    value = raw.copy()
    value[addend] = relocations.addend[row[addend]].view(np.uint64)
    return row, value


def _relocatable(
    image: Image, arch: Arch, slot: NDArray[np.uint64], raw: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Rows of the relocations of a relocatable file's slots, and the resulting values. A word
    without a relocation is null, or an address outside the file."""
    relocations, symbols = image.relocations, image.symbols
    row = relocations.at(slot, (arch.absolute,))
    value = np.where(raw == 0, raw, raw | np.uint64(NOWHERE))
    there = row >= 0
    at = row[there]
    if len(at):
        # Symbol 0 is 0; an invalid one leads nowhere.
        known = np.append(symbols.value, np.uint64(NOWHERE))
        known[0] = 0 if len(symbols) else NOWHERE
        place = known[np.minimum(relocations.symbol[at], len(symbols))]
        held = np.where(relocations.form[at] == Form.REL, raw[there].view(np.int64), 0)
        value[there] = place + (relocations.addend[at] + held).view(np.uint64)
    return row, value
