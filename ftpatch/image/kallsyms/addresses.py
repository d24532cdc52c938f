# SPDX-License-Identifier: MIT
"""The addresses of a kernel's own symbols, in whichever of its forms they are.

    absolute     a word each (before v4.6, and without KALLSYMS_BASE_RELATIVE up to v6.10)
    relative     4 bytes each, from relative_base (up to v7.x)
    per-CPU      the same, where x86-64 has per-CPU symbols at 0 (up to v6.14): a negative offset o
                 is base - 1 - o, another one is the address itself
    place        4 bytes each, from where they stand (since v7.x)

They stand in the order of addresses, so of the forms that a place could have, the one is taken
whose addresses ascend and lie in the image. kallsyms_sym_address() in kernel/kallsyms.c.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.relocations import Form, Relocations
from ftpatch.image.kallsyms.tables import Tables

__all__ = ["read_addresses"]

INSIDE = 0.9
"""Minimum share of the addresses that must be within the image. Others are per-CPU or absolute
symbols."""
DISTINCT = 0.25
"""Minimum share of the addresses that must differ from the one before. Zeros never do."""


def read_addresses(elf: Elf, relocations: Relocations, tables: Tables) -> NDArray[np.uint64] | None:
    """Addresses of the n symbols, as linked, uint64[n]; None if no form fits."""
    for address in _forms(elf, relocations, tables):
        if not (address[1:] >= address[:-1]).all():
            continue
        distinct = float((address[1:] != address[:-1]).mean())
        if distinct >= DISTINCT and float(elf.in_memory(address).mean()) >= INSIDE:
            return address
    return None


def _forms(elf: Elf, relocations: Relocations, tables: Tables) -> Iterator[NDArray[np.uint64]]:
    word, count = elf.word, len(tables)
    base_before = tables.before - word
    behind = _up(tables.behind, word)
    for at, base_at in (
        ((base_before - 4 * count) // word * word, base_before),
        (behind, _up(behind + 4 * count, word)),
    ):
        offset, base = _offsets(elf, at, count), _values(elf, relocations, base_at, 1)
        if offset is not None and base is not None and base[0]:
            yield base + (offset & 0xFFFF_FFFF).view(np.uint64)
            yield np.where(offset < 0, base + (-1 - offset).view(np.uint64), offset.view(np.uint64))
    for at in (tables.before - word * count, behind):
        absolute = _values(elf, relocations, at, count)
        if absolute is not None:
            yield absolute
    place = _up(tables.behind, 4)
    offset = _offsets(elf, place, count)
    if offset is not None and np.count_nonzero(offset) >= INSIDE * count:
        own = elf.address_of(place + 4 * np.arange(count, dtype=np.int64))
        yield own + offset.view(np.uint64)


def _up(offset: int, size: int) -> int:
    return -(-offset // size) * size


def _raw(elf: Elf, at: int, size: int) -> bytes | None:
    """Read ``size`` bytes at a file offset; None outside the file."""
    return elf.data[at : at + size].tobytes() if 0 <= at <= len(elf.data) - size else None


def _offsets(elf: Elf, at: int, count: int) -> NDArray[np.int64] | None:
    raw = _raw(elf, at, 4 * count)
    return None if raw is None else elf.order.signed(raw, 4)


def _values(elf: Elf, relocations: Relocations, at: int, count: int) -> NDArray[np.uint64] | None:
    """Words as linked: if a RELA relocation without a symbol writes one, its addend; the file
    itself often has 0 there."""
    raw = _raw(elf, at, elf.word * count)
    if raw is None:
        return None
    value = elf.order.unsigned(raw, elf.word)
    rows = np.flatnonzero(
        (relocations.form == Form.RELA) & (relocations.symbol == 0) & (relocations.type != 0)
    )
    start = elf.address_of(np.array([at], np.int64))
    distance = relocations.place[rows] - start
    inside = (distance < elf.word * count) & (distance % np.uint64(elf.word) == 0)
    slot = (distance[inside] // np.uint64(elf.word)).astype(np.intp)
    value[slot] = relocations.addend[rows[inside]].view(np.uint64)
    return value
