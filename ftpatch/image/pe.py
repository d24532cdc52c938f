# SPDX-License-Identifier: MIT
"""The PE header of a kernel that UEFI starts, as far as its signature goes.

    0x3c          offset of 'P' 'E' 00 00
    +24           optional header: magic 10b (PE32) or 20b (PE32+)
    +24+64        CheckSum (4 bytes)
    +24+96, +112  data directories, 8 bytes each: that of the certificates is the fifth; its address
                  is a file offset, and what it names is the end of the file

Microsoft PE/COFF Specification, "Optional Header" and "The Attribute Certificate Table". A kernel
is built without certificates and with a checksum of 0 (arch/x86/boot/header.S,
arch/arm64/kernel/efi-header.S, zboot-header.S); signing fills in both.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["Pe", "read_pe", "unsigned", "unsigned_size"]

AT = 0x3C
OPTIONAL = 24
CHECKSUM = 64
DIRECTORIES = {0x10B: 96, 0x20B: 112}
"""Offset of the data directories in the optional header, by its magic (bytes)."""
CERTIFICATES = 4


@dataclass(frozen=True, slots=True)
class Pe:
    """File offsets of two fields, ``checksum`` (4 bytes) and ``directory`` (8 bytes), and those of
    the certificates, which end the file: ``start`` and ``size`` in bytes, 0 without a signature."""

    checksum: int
    directory: int
    start: int
    size: int

    @property
    def filled(self) -> tuple[tuple[int, int], ...]:
        """(file offset, size in bytes) of the fields that signing fills in."""
        return (self.checksum, 4), (self.directory, 8)


def read_pe(data: memoryview) -> Pe | None:
    """Read the header of a whole file; None if it has none with a directory for certificates.
    Certificates that do not end the file are no signature."""
    if bytes(data[:2]) != b"MZ" or len(data) < AT + 4:
        return None
    (at,) = struct.unpack_from("<I", data, AT)
    optional = at + OPTIONAL
    if bytes(data[at : at + 4]) != b"PE\0\0" or len(data) < optional + 2:
        return None
    (magic,) = struct.unpack_from("<H", data, optional)
    if magic not in DIRECTORIES:
        return None
    directories = optional + DIRECTORIES[magic]
    directory = directories + 8 * CERTIFICATES
    if len(data) < directory + 8:
        return None
    (count,) = struct.unpack_from("<I", data, directories - 4)
    if count <= CERTIFICATES:
        return None
    start, size = struct.unpack_from("<II", data, directory)
    if not size or start < directory + 8 or start + size != len(data):
        start = size = 0
    return Pe(optional + CHECKSUM, directory, start, size)


def unsigned_size(data: memoryview) -> int:
    """Bytes of a file without the certificates at its end."""
    pe = read_pe(data)
    return pe.start if pe is not None and pe.size else len(data)


def unsigned(data: memoryview) -> bytearray:
    """Copy a file without its certificates, with the header as the build leaves it."""
    pe = read_pe(data)
    if pe is None or not pe.size:
        return bytearray(data)
    out = bytearray(data[: pe.start])
    for at, size in pe.filled:
        out[at : at + size] = bytes(size)
    return out
