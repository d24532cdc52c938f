# SPDX-License-Identifier: MIT
"""Replacing strings of the dynamic table: the libraries needed, and where to look for them.

An entry is an offset from DT_STRTAB. The new string is in the inserted segment, at whatever
distance: dynamic linkers ignore DT_STRSZ.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.core.columns import addresses
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.image import Image

__all__ = ["replaced", "strings", "with_origin"]


def with_origin(text: bytes, origin: bytes) -> bytes:
    """Replace $ORIGIN in a path of the dynamic table: a copy stands elsewhere."""
    return text.replace(b"${ORIGIN}", origin).replace(b"$ORIGIN", origin)


def strings(wanted: Mapping[int, bytes]) -> tuple[bytes, dict[int, int]]:
    """Concatenate the new strings; also return each one's offset, by its entry's place."""
    data, places = b"", dict[int, int]()
    for entry, text in wanted.items():
        places[entry] = len(data)
        data += text + b"\0"
    return data, places


def replaced(image: Image, places: Mapping[int, int], address: int) -> Changes:
    """Change entries of the dynamic table (by their d_val's offset from its start) to name the
    strings that are so far behind ``address`` (link address). Raises InputError for an image
    without a string table."""
    segment = image.elf.segment(Segment.PT_DYNAMIC)
    start = dynamic_tags(image.elf).get(Tag.STRTAB)
    if segment is None or start is None:
        raise InputError(image.path, "its dynamic section has no string table")
    word = image.elf.word
    parts = []
    for entry, place in places.items():
        offset = segment.offset + entry
        value = (address + place - start) % (1 << 8 * word)
        old = image.elf.contents(offset, word, "dynamic table").reshape(1, -1)
        new = image.elf.order.rows(addresses(value), word)
        parts.append(Changes.of(Kind.HEADER, np.array([offset], np.int64), old, new, NO_OWNER))
    return Changes.concat(parts)
