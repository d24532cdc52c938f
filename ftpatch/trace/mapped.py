"""The shared libraries of a trace, as its header lists them (struct trace_library of trace.h).

| header's fields, path | length - start size base bias image_id path | ... | 0
0                       1280                                                header_size
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

__all__ = ["AT", "Mapped", "read_mapped", "read_objects"]

AT = 1280
"""Offset of them in the header."""
FIXED = struct.Struct("<2I4Q32s")
END = 1 << 28
"""Of the addresses that an event can tell."""


@dataclass(frozen=True)
class Mapped:
    """Functions of the library at ``path`` (``image_id``: SHA-256 of that file) have ``func`` from
    ``start`` on, ``size`` bytes; that is the link address ``base`` and those behind it, and in
    memory ``bias`` further."""

    start: int
    size: int
    base: int
    bias: int
    image_id: bytes
    path: str


def read_objects(raw: bytes) -> tuple[Mapped, ...]:
    """Read what else was loaded with a program that was probed or watched, from its header: of
    that no event tells a range, and corrupt entries are left out."""
    found: list[Mapped] = []
    at = AT
    while at + FIXED.size <= len(raw):
        length, _, start, size, base, bias, image_id = FIXED.unpack_from(raw, at)
        if length <= FIXED.size or length % 8 or at + length > len(raw):
            break
        path = raw[at + FIXED.size : at + length].partition(b"\0")[0]
        if size and path and base + size < 1 << 64:
            found.append(Mapped(start, size, base, bias, image_id, os.fsdecode(path)))
        at += length
    return tuple(found)


def read_mapped(raw: bytes) -> tuple[tuple[Mapped, ...], int]:
    """The libraries in a header, and how many entries are corrupt: what is longer than there is
    room ends the table; a range that no event can tell of, or of another library, is left out."""
    found: list[Mapped] = []
    wrong, at = 0, AT
    while at + 4 <= len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        if not length:
            break
        if length <= FIXED.size or length % 8 or at + length > len(raw):
            wrong += 1
            break
        _, _, start, size, base, bias, image_id = FIXED.unpack_from(raw, at)
        path = raw[at + FIXED.size : at + length].partition(b"\0")[0]
        end = start + size
        if (
            not size
            or end > END
            or any(start < other.start + other.size and other.start < end for other in found)
        ):
            wrong += 1
        else:
            found.append(Mapped(start, size, base, bias, image_id, os.fsdecode(path)))
        at += length
    return tuple(found), wrong
