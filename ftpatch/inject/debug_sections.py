# SPDX-License-Identifier: MIT
"""The stub's .debug_frame as a section of the program: debuggers do not look at its segments.

    .debug_frame   length | ffffffff (CIE) ...
                   length | offset of its CIE | address, size of the function | how to unwind it

DWARF 5, section 6.4.1, "Structure of Call Frame Information".
"""

from __future__ import annotations

from ftpatch.core.byte_order import ByteOrder
from ftpatch.core.changes import Changes
from ftpatch.elf.headers import Section
from ftpatch.elf.sections import Headers, Tail
from ftpatch.errors import InputError
from ftpatch.image import Image
from ftpatch.inject.inject import Injected
from ftpatch.inject.stub import Stub

__all__ = ["for_debuggers"]

FRAMES = ".debug_frame"
CIE = 0xFFFF_FFFF


def for_debuggers(image: Image, stub: Stub, laid: Injected) -> tuple[Changes, bytes]:
    """Add the stub's .debug_frame as a section of the program, or append it to the program's own;
    return all changes and the bytes to insert. A program without section headers has no place for
    one."""
    if not stub.frames or not image.elf.sections:
        return laid.changes, laid.tail
    headers = Headers(image.elf, Tail(len(image.data)))
    headers.tail.data += laid.tail
    own = image.elf.section(FRAMES)
    before = headers.contents(own) if own else b""
    added = _relocated(
        stub.frames, order=stub.order, word=image.elf.word, shift=laid.shift, base=len(before)
    )
    if own is not None:
        headers.move(own.index, before + added)
    else:
        names = headers.names(FRAMES)
        if not names:
            return laid.changes, laid.tail
        headers.append(names[0], Section.SHT_PROGBITS, added)
    changes = Changes.concat([laid.changes, headers.changes()])
    return changes, bytes(headers.tail.data)


def _relocated(data: bytes, *, order: ByteOrder, word: int, shift: int, base: int) -> bytes:
    """Relocate a .debug_frame section whose functions move up by ``shift`` bytes, and which goes
    ``base`` bytes after the start of another one. ``word``: bytes of an address. Raises InputError
    for malformed entries."""
    out = bytearray(data)
    at = 0
    while at + 8 <= len(out):
        length, pointer = (order.integer(data[at + n : at + n + 4]) for n in (0, 4))
        if length > len(out) - at - 4 or length < 4 + (pointer != CIE) * word:
            raise InputError(None, "the stub's .debug_frame is corrupt")
        if pointer != CIE:
            place = slice(at + 8, at + 8 + word)
            address = (order.integer(data[place]) + shift) % (1 << 8 * word)
            out[at + 4 : at + 8] = order.packed(pointer + base, 4)
            out[place] = order.packed(address, word)
        at += 4 + length
    return bytes(out)
