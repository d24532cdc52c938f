# SPDX-License-Identifier: MIT
"""The build-id of an ELF file (NT_GNU_BUILD_ID, as ``ld --build-id`` writes it)."""

from __future__ import annotations

from collections.abc import Iterator

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section

__all__ = ["build_id", "build_id_note"]

SHT_NOTE = 7
NT_GNU_BUILD_ID = 3
HEADER = 16
"""Bytes of its note before it."""


def build_id(elf: Elf) -> str:
    """Read the build-id, in hexadecimal; empty if there is none."""
    return _found(elf)[1].hex()


def build_id_note(elf: Elf) -> int:
    """Find the link address of its note, 0: there is none. The note has HEADER bytes more."""
    return _found(elf)[0]


def _found(elf: Elf) -> tuple[int, bytes]:
    for address, name, kind, value in _notes(elf):
        if name == b"GNU\0" and kind == NT_GNU_BUILD_ID:
            return address - HEADER, value
    return 0, b""


def _notes(elf: Elf) -> Iterator[tuple[int, bytes, int, bytes]]:
    """Link address of the descriptor, name, type and descriptor of each note in a section; a broken
    one ends its section."""
    for section in elf.sections:
        if section.type != SHT_NOTE or not section.flags & Section.SHF_ALLOC:
            continue
        data = elf.data[section.offset : section.offset + section.size].tobytes()
        at = 0
        while at + 12 <= len(data):
            sizes = [elf.order.integer(data[at + i : at + i + 4]) for i in (0, 4, 8)]
            name_size, value_size, kind = sizes
            value = at + 12 + (name_size + 3 & ~3)
            name = data[at + 12 : at + 12 + name_size]
            yield section.address + value, name, kind, data[value : value + value_size]
            at = value + (value_size + 3 & ~3)
