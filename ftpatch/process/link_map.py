# SPDX-License-Identifier: MIT
"""The dynamic linker's list of what it has loaded (struct link_map, <link.h>).

    _r_debug.r_map -> | l_addr | l_name | l_ld | l_next | l_prev | the linker's own ... dev, ino |

A file that is opened by another name is known by its device and inode, which glibc keeps in the
part that is its own (struct r_file_id).
"""

from __future__ import annotations

import os
import struct
from typing import Final

from ftpatch.process.memory_target import MemoryTarget

__all__ = ["take_for"]

MAP: Final = 8
"""Offset of r_map in struct r_debug of 64-bit machines."""
ADDRESS, NEXT = 0, 24
"""Offsets of l_addr and l_next in a struct link_map."""
FILE_ID: Final = struct.Struct("<2Q")
SIZE: Final = 2048
"""Bytes of a struct link_map to search; that of glibc 2.41 has less."""
PART: Final = 256
MAX_ENTRIES: Final = 1 << 16
"""Entries to look at."""


def take_for(
    target: MemoryTarget, debug: int, bias: int, held: os.stat_result, other: os.stat_result
) -> bool:
    """Let the linker whose struct r_debug is at ``debug`` take what it has loaded at ``bias``, the
    file ``held``, for another one; say whether it does. Raises InputError."""
    at = _word(target, debug + MAP)
    for _ in range(MAX_ENTRIES):
        if not at:
            return False
        if _word(target, at + ADDRESS) == bias % (1 << 64):
            return _replace(target, at, _packed(held), _packed(other))
        at = _word(target, at + NEXT)
    return False


def _replace(target: MemoryTarget, at: int, old: bytes, new: bytes) -> bool:
    """Replace a file's identity in the linker's own part of an entry, where it is once."""
    known = b""
    while len(known) < SIZE and (part := target.read(at + len(known), PART)) is not None:
        known += part
    places = [place for place in range(0, len(known), 8) if known.startswith(old, place)]
    if len(places) != 1:
        return False
    target.write(at + places[0], new)
    return True


def _packed(file: os.stat_result) -> bytes:
    return FILE_ID.pack(file.st_dev, file.st_ino)


def _word(target: MemoryTarget, at: int) -> int:
    return int.from_bytes(target.read(at, 8) or b"", "little")
