# SPDX-License-Identifier: MIT
"""The shared libraries of a trace, as its header lists them (struct trace_library of trace.h).

| header's fields, path | length - start size base bias image_id path | ... | 0
0                       1280                                                header_size
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ftpatch.core.byte_order import ByteOrder
from ftpatch.layout import constants, offset_of, structure, unpack

__all__ = ["AT", "Mapped", "read_mapped", "read_objects"]

AT = offset_of("trace_header", "libraries")
"""Their offset in the header."""
FIXED = structure("trace_library").itemsize
"""Size of an entry without its path (bytes)."""
END = 1 << constants["FUNC_BITS"]
"""Range of addresses an event can hold."""


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """A library at ``path`` (``image_id``: SHA-256 of that file). Its functions' ``func`` count
    from ``start``, for ``size`` bytes; that is the link address ``base`` onwards, and ``bias``
    higher in memory."""

    start: int
    size: int
    base: int
    bias: int
    image_id: bytes
    path: str


def read_objects(raw: bytes, order: ByteOrder) -> tuple[Mapped, ...]:
    """Read the other objects loaded with a probed or watched program from its header. No event
    refers to their ranges; corrupt entries are left out."""
    found: list[Mapped] = []
    at = AT
    while at + FIXED <= len(raw):
        one, length = _mapped(raw, at, order)
        if length <= FIXED or length % 8 or at + length > len(raw):
            break
        if one.size and one.path and one.base + one.size < 1 << 64:
            found.append(one)
        at += length
    return tuple(found)


def read_mapped(raw: bytes, order: ByteOrder) -> tuple[tuple[Mapped, ...], int]:
    """Read the libraries in a header, and count corrupt entries. An entry longer than the header
    ends the table; a range that no event can refer to, or that overlaps another library's, is left
    out."""
    found: list[Mapped] = []
    wrong, at = 0, AT
    size = len(raw)
    raw += bytes(FIXED)  # so that a last entry with a bad length stays readable
    while at < size:
        one, length = _mapped(raw, at, order)
        if not length:
            break
        if length <= FIXED or length % 8 or at + length > size:
            wrong += 1
            break
        end = one.start + one.size
        if (
            not one.size
            or end > END
            or any(one.start < other.start + other.size and other.start < end for other in found)
        ):
            wrong += 1
        else:
            found.append(one)
        at += length
    return tuple(found), wrong


def _mapped(raw: bytes, at: int, order: ByteOrder) -> tuple[Mapped, int]:
    """An entry, and the length it claims."""
    held = unpack("trace_library", order, raw, at)
    length = held["length"]
    path = os.fsdecode(raw[at + FIXED : at + length].partition(b"\0")[0])
    fields = ("start", "size", "base", "bias", "image_id")
    return Mapped(**{name: held[name] for name in fields}, path=path), length
