# SPDX-License-Identifier: MIT
"""Shared libraries traced along with a program: the table that the program's runtime reads.

    in the program    | dynamic, place | struct trace_library | dynamic, place | ... | zeros
    in the library    struct library_hook, to which `place` points

(stubs/runtime/libraries.h, trace.h.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ftpatch.core.byte_order import ByteOrder
from ftpatch.elf.dynamic import Tag, dynamic_values
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image
from ftpatch.inject.runtime import code_span
from ftpatch.layout import constants, offset_of, pack, structure

__all__ = [
    "FOUND",
    "ROOM",
    "TOLD",
    "Library",
    "fitting",
    "libraries_table",
    "linker_place",
    "ranges",
    "told_length",
]

FOUND = offset_of("library", "told")
"""Bytes of a struct library before its struct trace_library."""
TOLD = structure("trace_library").itemsize
"""Size of that without the path (bytes)."""
ROOM = constants["TRACE_HEADER"] - offset_of("trace_header", "libraries")
"""Bytes of a trace's header available for them."""
PAGE = 4096
FUNC_BITS = constants["FUNC_BITS"]
"""Range of an event's ``func``."""


@dataclass(frozen=True)
class Library:
    """A traced library. ``path`` of its file, and its ``image_id``; ``start`` and ``size`` of its
    events' range of ``func``, which stands for the addresses from ``base`` on; ``dynamic`` and
    ``place``: link addresses of its dynamic table and its struct library_hook; ``sites``: the
    number traced. Of a library in a process, ``place`` is the address in memory, and ``bias`` that
    less the link address."""

    path: bytes
    image_id: bytes
    start: int
    size: int
    base: int
    dynamic: int
    place: int
    sites: int
    bias: int = 0

    def told(self, order: ByteOrder) -> bytes:
        """Its struct trace_library."""
        length = told_length(self.path)
        fixed = pack(
            "trace_library",
            order,
            length=length,
            start=self.start,
            size=self.size,
            base=self.base,
            bias=self.bias % (1 << 64),
            image_id=self.image_id,
        )
        return (fixed + self.path).ljust(length, b"\0")

    def found(self, order: ByteOrder) -> bytes:
        """The start of its struct library."""
        return pack("library", order, dynamic=self.dynamic, place=self.place)[:FOUND]


def told_length(path: bytes) -> int:
    """Size of a struct trace_library (bytes)."""
    return (TOLD + len(path) + 1 + 7) // 8 * 8


def fitting(paths: Iterable[bytes]) -> list[bool]:
    """Select the libraries that fit into a trace's header, in order."""
    left, out = ROOM, []
    for path in paths:
        fits = told_length(path) <= left
        left -= told_length(path) if fits else 0
        out.append(fits)
    return out


def libraries_table(libraries: Sequence[Library], order: ByteOrder) -> bytes:
    """Build the table for the program's runtime."""
    parts = (one.found(order) + one.told(order) for one in libraries)
    return b"".join(parts) + bytes(FOUND + TOLD)


def ranges(program: Image, libraries: Sequence[Image]) -> list[tuple[int, int, int]]:
    """Assign each library a (start, size, base) range, after the program's own code. Raises
    UsageError if events cannot address that much code, InputError if one image alone is too
    large."""
    base, end = code_span(program)
    start = _pages(end - base)
    out = []
    for image in libraries:
        base, end = code_span(image)
        out.append((start, _pages(end - base), base))
        start += _pages(end - base)
        if start >= 1 << FUNC_BITS:
            raise UsageError(
                image.path,
                f"the code of all libraries spans more than {1 << FUNC_BITS} bytes",
                "trace fewer libraries",
            )
    return out


def linker_place(image: Image) -> int:
    """Find the dynamic table entry through which the dynamic linker lists the objects it has mapped
    (DT_DEBUG); return its link address. Raises InputError for a program without one, or whose
    PT_DYNAMIC names another address than its PT_LOAD segments."""
    segment = image.elf.segment(Segment.PT_DYNAMIC)
    places = [at for tag, _, at in dynamic_values(image.elf) if tag == Tag.DEBUG]
    if segment is None or not places:
        raise InputError(image.path, "cannot find its libraries: no DT_DEBUG")
    if image.elf.offset_of(np.array([segment.address], np.uint64))[0] != segment.offset:
        raise InputError(image.path, "cannot find its libraries: the dynamic table is not mapped")
    return segment.address + places[0]


def _pages(size: int) -> int:
    return (size + PAGE - 1) // PAGE * PAGE
