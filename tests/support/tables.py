# SPDX-License-Identifier: MIT
"""Relocation tables for images of tests, written from the specifications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.support.elf_writer import Image

__all__ = ["rel", "rela", "relr"]


def rela(image: Image, rows: Iterable[tuple[int, int, int, int]]) -> bytes:
    """RELA entries of (place, type, symbol, addend)."""
    shift = 32 if image.bits == 64 else 8
    mask = (1 << image.bits) - 1
    return b"".join(
        image.pack("WWW", place, symbol << shift | kind, addend & mask)
        for place, kind, symbol, addend in rows
    )


def rel(image: Image, rows: Iterable[tuple[int, int, int]]) -> bytes:
    """REL entries of (place, type, symbol)."""
    shift = 32 if image.bits == 64 else 8
    return b"".join(image.pack("WW", place, symbol << shift | kind) for place, kind, symbol in rows)


def relr(image: Image, places: Sequence[int]) -> bytes:
    """A RELR table of sorted places: an address word, then bitmaps of the words behind it."""
    size, out = image.bits // 8, []
    per = image.bits - 1
    rest = list(places)
    while rest:
        head = rest.pop(0)
        out.append(head)
        base = head + size
        while rest and rest[0] < base + per * size:
            bits = 0
            while rest and rest[0] < base + per * size:
                bits |= 1 << (rest.pop(0) - base) // size
            out.append(bits << 1 | 1)
            base += per * size
    return image.table(out)
