# SPDX-License-Identifier: MIT
"""Strings of the dynamic table, replaced: what libraries are needed, and where they are looked for.

An entry counts from DT_STRTAB. The new string lies in the insertion, as far behind that as it may
be: a dynamic linker does not look at DT_STRSZ.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ftpatch.core.changes import NO_OWNER, Changes, Kind
from ftpatch.elf.dynamic import Tag, dynamic_tags
from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError
from ftpatch.image import Image

__all__ = ["replaced", "strings"]


def strings(wanted: Mapping[int, bytes]) -> tuple[bytes, dict[int, int]]:
    """All new strings one behind the other, and where each is, by the place of its entry."""
    data, places = b"", dict[int, int]()
    for entry, text in wanted.items():
        places[entry] = len(data)
        data += text + b"\0"
    return data, places


def replaced(image: Image, places: Mapping[int, int], address: int) -> Changes:
    """Changes for entries of the dynamic table (by the distance of their d_val from its start) to
    name the strings that are so far behind ``address`` (link address). Raises InputError for an
    image without a table of strings."""
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
        new = np.frombuffer(value.to_bytes(word, "little"), np.uint8).reshape(1, -1)
        parts.append(Changes.of(Kind.HEADER, np.array([offset], np.int64), old, new, NO_OWNER))
    return Changes.concat(parts)
