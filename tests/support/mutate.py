# SPDX-License-Identifier: MIT
"""Broken copies of good images: bytes flipped, numbers replaced, parts moved, ends cut off."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ftpatch.core.changes import Changes
from ftpatch.core.journal import pack_block

__all__ = ["Region", "forged", "mutated", "regions"]

INTERESTING: tuple[int, ...] = (
    0,
    1,
    2,
    7,
    8,
    0x7F,
    0x80,
    0xFF,
    0xFFF,
    0x1000,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
)
INTERESTING += (0xFFFF_FFFF, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8)


@dataclass(frozen=True)
class Region:
    """A part of a file that a mutation may aim at."""

    name: str
    start: int
    end: int


def regions(data: bytes) -> list[Region]:
    """Headers, the table, relocations, symbols, strings, the dynamic table, the journal; read
    here without ftpatch, and only from whole files."""
    wide = data[4] == 2
    word = 8 if wide else 4
    order = _order(data)

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], order)

    phoff, shoff = (number(at, word) for at in ((32, 40) if wide else (28, 32)))
    counts = 54 if wide else 42
    phentsize, phnum, shentsize, shnum, shstrndx = (
        number(at, 2) for at in range(counts, counts + 10, 2)
    )
    found = [
        Region("header", 0, 64 if wide else 52),
        Region("program headers", phoff, phoff + phentsize * phnum),
        Region("whole", 0, len(data)),
    ]
    if shnum:
        found.append(Region("section headers", shoff, shoff + shentsize * shnum))
        names_at = number(shoff + shstrndx * shentsize + (24 if wide else 16), word)
    for i in range(shnum):
        at = shoff + i * shentsize
        name_at = names_at + number(at, 4)
        name = data[name_at : data.index(b"\0", name_at)].decode()
        offset, size = (number(at + x, word) for x in ((24, 32) if wide else (16, 20)))
        if number(at + 4, 4) != 8 and size and offset + size <= len(data):
            found.append(Region(name, offset, offset + size))
    journal = data.find(b"\x7fftpatch")
    if journal >= 0:
        found += [Region("journal", max(journal - 400, 0), len(data))] * 6
    return found


def mutated(
    data: bytes, other: bytes, rng: random.Random, places: list[Region] | None = None
) -> tuple[bytes, str]:
    """A broken copy, and what was done to it; ``other`` is another image to splice from, ``places``
    are those to break, by default an ELF file's."""
    out, said = bytearray(data), []
    places = regions(data) if places is None else places
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        where = rng.choice(places)
        if where.end <= where.start or where.start >= len(out):
            continue
        how = rng.choice((_flip, _flip, _number, _number, _number, _splice, _repeat, _truncate))
        how(out, other, where, rng)
        said.append(f"{how.__name__.strip('_')} {where.name}")
    return bytes(out), ", ".join(said)


def forged(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """The image with a journal that is whole, but that no command wrote."""
    places = [region for region in regions(data) if region.end > region.start]
    kind = rng.choice((None, None, *range(7)))
    rows: dict[int, tuple[int, int, bytes]] = {}
    for _ in range(rng.choice((1, 2, 8, 40))):
        where = rng.choice(places)
        width = rng.choice((1, 2, 4, 5, 6, 8, 24))
        at = max(min(rng.randrange(where.start, where.end), len(data) - width), 0)
        old = rng.choice((rng.randbytes(width), bytes(width), b"\xff" * width))
        if rng.random() < 0.5:
            at -= at % 4
        rows[at] = (width, rng.randrange(7) if kind is None else kind, old)
    parts, end = [], 0
    for at, (width, what, old) in sorted(rows.items()):
        if at >= end:
            new = data[at : at + width] if rng.random() < 0.9 else rng.randbytes(width)
            end = at + width
            parts.append((at, width, what, old[:width], new, rng.choice((at, 0, 1 << 63))))
    offsets, widths, kinds, olds, news, owners = zip(*parts, strict=True)
    k = max(widths)
    changes = Changes(
        offset=np.array(offsets, np.int64),
        width=np.array(widths, np.uint16),
        old=np.array([list(old.ljust(k, b"\0")) for old in olds], np.uint8),
        new=np.array([list(new.ljust(k, b"\0")) for new in news], np.uint8),
        kind=np.array(kinds, np.uint8),
        owner=np.array(owners, np.uint64),
    )
    cut = rng.randbytes(rng.choice((0, 0, 5)))
    return data + pack_block(changes, len(data) + len(cut), cut), f"forged {len(parts)} Changes"


Mutation = Callable[[bytearray, bytes, Region, random.Random], None]


def _order(data: bytes | bytearray) -> Literal["big", "little"]:
    """The byte order of an ELF file; of another file, little-endian."""
    return "big" if data[:4] == b"\x7fELF" and data[5:6] == b"\2" else "little"


def _at(out: bytearray, where: Region, rng: random.Random) -> int:
    return min(rng.randrange(where.start, where.end), max(len(out) - 1, 0))


def _flip(out: bytearray, _: bytes, where: Region, rng: random.Random) -> None:
    for _bit in range(rng.choice((1, 1, 4, 32))):
        if out:
            out[_at(out, where, rng)] ^= 1 << rng.randrange(8)


def _number(out: bytearray, _: bytes, where: Region, rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    at = _at(out, where, rng) // size * size
    if at + size <= len(out):
        order = _order(out)
        old = int.from_bytes(out[at : at + size], order)
        value = rng.choice((*INTERESTING, len(out), old + 1, old - 1, old + 4, old ^ 1 << 31))
        out[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, order)


def _splice(out: bytearray, other: bytes, where: Region, rng: random.Random) -> None:
    at, size = _at(out, where, rng), rng.choice((1, 8, 24, 64, 400))
    start = rng.randrange(len(other))
    part = other[start : start + size]
    out[at : at + len(part)] = part[: len(out) - at]


def _repeat(out: bytearray, _: bytes, where: Region, rng: random.Random) -> None:
    at, to, size = _at(out, where, rng), _at(out, where, rng), rng.choice((4, 8, 24, 56, 64))
    part = out[at : at + size]
    out[to : to + len(part)] = part[: len(out) - to]


def _truncate(out: bytearray, _: bytes, where: Region, rng: random.Random) -> None:
    if rng.random() < 0.5:
        del out[_at(out, where, rng) :]
    else:
        out += rng.randbytes(rng.choice((1, 8, 56, 4096)))
