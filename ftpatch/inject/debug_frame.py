"""Unwind information for debuggers, which do not look at a stub's segments.

    .debug_frame   length | ffffffff (CIE) ...
                   length | offset of its CIE | address, size of the function | how to unwind it

DWARF 5, section 6.4.1, "Structure of Call Frame Information".
"""

from __future__ import annotations

import struct

from ftpatch.errors import InputError

__all__ = ["relocated"]

CIE = 0xFFFF_FFFF


def relocated(data: bytes, *, word: int, shift: int, base: int) -> bytes:
    """The entries of a .debug_frame section whose functions are ``shift`` bytes further up, and
    which are to stand ``base`` bytes behind the start of another one. ``word``: bytes of an
    address. Raises InputError for what are no such entries."""
    out = bytearray(data)
    kind = {8: "<Q", 4: "<I"}[word]
    at = 0
    while at + 8 <= len(out):
        length, pointer = struct.unpack_from("<II", out, at)
        if length > len(out) - at - 4 or length < 4 + (pointer != CIE) * word:
            raise InputError(None, "the stub's .debug_frame is corrupt")
        if pointer != CIE:
            (address,) = struct.unpack_from(kind, out, at + 8)
            struct.pack_into("<I", out, at + 4, pointer + base)
            struct.pack_into(kind, out, at + 8, (address + shift) & (1 << 8 * word) - 1)
        at += 4 + length
    return bytes(out)
