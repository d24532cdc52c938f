# SPDX-License-Identifier: MIT
"""The headers of an ELF file, read by LIEF from a skeleton.

LIEF's full parse of a 633 MB vmlinux takes 18 s and 2.4 GB. Nearly all of it goes into contents
that ftpatch reads itself, so only the headers go to LIEF: ELF header, program headers, section
headers and the section-name table, copied into one small buffer.

    file:      | Ehdr | Phdr... | contents ................ | names | Shdr... |
    skeleton:  | Ehdr | Phdr... | Shdr... | names |
                 e_phoff, e_shoff and the name table's sh_offset follow the copies;
                 every other offset stays that of the file.

Layout of the headers: System V ABI, chapter 4 (ELF header, sections) and 5 (program header).
"""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import dataclass, replace

import lief
import numpy as np
from numpy.typing import NDArray

from ftpatch.elf.headers import Section, Segment, Skeleton
from ftpatch.elf.known_files import elf_words, what_is
from ftpatch.errors import InputError

__all__ = ["read_skeleton"]

EI_CLASS, EI_DATA, E_TYPE = 4, 5, 16
ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB = 1, 2, 1, 2
LIMIT_HEADERS = 1 << 20
"""Maximum product of the numbers of program and section headers; LIEF pairs them."""
LIMIT_NAMES = 1 << 24
"""Maximum size of section names; a vmlinux has 4 KB, a library of 60,000 sections 3 MB."""
PN_XNUM, SHN_XINDEX = 0xFFFF, 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Sizes (bytes) and offsets of fields in the headers of one ELF class."""

    header: int
    offsets: str
    offsets_at: int
    counts_at: int
    program: int
    section: int
    section_offset: str
    section_offset_at: int


_LAYOUT = {
    ELFCLASS32: _Layout(
        header=52,
        offsets="<II",
        offsets_at=28,
        counts_at=42,
        program=32,
        section=40,
        section_offset="<II",
        section_offset_at=16,
    ),
    ELFCLASS64: _Layout(
        header=64,
        offsets="<QQ",
        offsets_at=32,
        counts_at=54,
        program=56,
        section=64,
        section_offset="<QQ",
        section_offset_at=24,
    ),
}


def read_skeleton(path: str, data: NDArray[np.uint8]) -> Skeleton:
    """Read the header, sections and segments of the ELF file with the bytes ``data`` (uint8[size]).

    Raises InputError for anything but ELF files, for big-endian ones, and for headers that are
    outside the file.
    """
    size = len(data)
    ident = data[:16].tobytes()
    if ident[:4] != b"\x7fELF":
        known = what_is(data.data)
        if known is not None:
            raise InputError(path, f"{known.name}, not an ELF file", known.advice)
        raise InputError(path, "not an ELF file", "use a vmlinux, a program or a shared library")
    if size < 16 or ident[EI_CLASS] not in _LAYOUT:
        raise InputError(path, "the ELF header is truncated or has an unknown class")
    if ident[EI_DATA] == ELFDATA2MSB:
        named = elf_words(data.data) if size >= 20 else "big-endian ELF"
        raise InputError(path, f"{named}: big-endian ELF is not supported")
    if ident[EI_DATA] != ELFDATA2LSB:
        raise InputError(path, f"invalid EI_DATA {ident[EI_DATA]}")
    layout = _LAYOUT[ident[EI_CLASS]]
    if size < layout.header:
        raise InputError(path, f"truncated: {size} bytes, but the ELF header takes {layout.header}")

    header = bytearray(data[: layout.header].tobytes())
    phoff, shoff = struct.unpack_from(layout.offsets, header, layout.offsets_at)
    phentsize, phnum, shentsize, shnum, shstrndx = struct.unpack_from(
        "<HHHHH", header, layout.counts_at
    )
    if not shoff:
        shnum = shstrndx = 0
    elif shnum == 0 or shstrndx == SHN_XINDEX or phnum == PN_XNUM:
        raise InputError(path, "extended section or segment numbering is not supported")
    for what, count, entry, wanted in (
        ("program", phnum, phentsize, layout.program),
        ("section", shnum, shentsize, layout.section),
    ):
        if count and entry != wanted:
            raise InputError(path, f"a {what} header has {entry} bytes, must be {wanted}")

    def part(what: str, offset: int, length: int) -> bytes:
        if offset + length > size:
            raise InputError(
                path,
                f"truncated: no room for the {what} at {offset:#x} ({length} bytes): "
                f"the file has only {size:#x}",
            )
        return data[offset : offset + length].tobytes()

    if phnum * shnum > LIMIT_HEADERS:
        raise InputError(path, f"{phnum} program headers and {shnum} section headers")

    programs = part("program headers", phoff, phnum * layout.program)
    sections = bytearray(part("section headers", shoff, shnum * layout.section))
    names, offset = b"", 0
    if shnum:
        if shstrndx >= shnum:
            raise InputError(path, f"invalid section-name table: section {shstrndx} of {shnum}")
        at = shstrndx * layout.section + layout.section_offset_at
        offset, length = struct.unpack_from(layout.section_offset, sections, at)
        names = part("section-name table", offset, length)
        _limit_names(path, sections, names, layout.section)
        behind = layout.header + len(programs) + len(sections)
        struct.pack_into(layout.section_offset[:2], sections, at, behind)
    struct.pack_into(
        layout.offsets,
        header,
        layout.offsets_at,
        layout.header if phnum else 0,
        layout.header + len(programs) if shnum else 0,
    )
    skeleton = bytes(header) + programs + bytes(sections) + names
    parsed = _parse(path, skeleton, size, shnum, {shstrndx: offset} if shnum else {})
    return replace(parsed, section_headers=shoff if shnum else 0)


def _limit_names(path: str, sections: bytearray, names: bytes, entry: int) -> None:
    """Reject section names that add up to more than any real file has: all may share one long
    string."""
    ends = np.flatnonzero(np.frombuffer(names, np.uint8) == 0)
    start = np.frombuffer(sections, np.uint8).reshape(-1, entry)[:, :4].copy().view("<u4")[:, 0]
    at = np.searchsorted(ends, start.astype(np.int64))
    length = np.append(ends, len(names))[at] - start.astype(np.int64)
    if int(np.maximum(length, 0).sum()) > LIMIT_NAMES:
        raise InputError(path, "its section names are too long")


def _parse(path: str, skeleton: bytes, size: int, shnum: int, moved: dict[int, int]) -> Skeleton:
    lief.logging.disable()
    config = lief.ELF.ParserConfig()
    config.parse_relocations = False
    config.parse_dyn_symbols = False
    config.parse_symtab_symbols = False
    config.parse_symbol_versions = False
    config.parse_notes = False
    config.parse_overlay = False
    binary = lief.ELF.parse(io.BytesIO(skeleton), config)
    if not isinstance(binary, lief.ELF.Binary):
        raise InputError(path, "LIEF cannot read the ELF headers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # for types that LIEF's enumerations lack
        sections, segments = _sections(binary, moved), _segments(binary)
    if len(sections) != shnum:
        raise InputError(path, f"{shnum} section headers, but only {len(sections)} readable")
    for segment in segments:
        if segment.type == Segment.PT_LOAD and segment.offset + segment.size > size:
            raise InputError(
                path,
                f"truncated: a segment at {segment.offset:#x} needs {segment.size:#x} bytes, "
                f"but the file has only {size:#x}",
            )
    for section in sections:
        outside = section.offset + section.size > size
        if outside and section.type not in (Section.SHT_NULL, Section.SHT_NOBITS):
            raise InputError(
                path,
                f"truncated: section {section.index} at {section.offset:#x} needs "
                f"{section.size:#x} bytes, but the file has only {size:#x}",
            )
    kind, machine = struct.unpack_from("<HH", skeleton, E_TYPE)
    bits = 64 if skeleton[EI_CLASS] == ELFCLASS64 else 32
    return Skeleton(bits, machine, kind, sections, segments)


def _number(value: object) -> int:
    """LIEF's enumerations carry the machine in the high bits of processor-specific types."""
    return int(getattr(value, "value", value)) & 0xFFFF_FFFF  # type: ignore[call-overload, no-any-return]


def _sections(binary: lief.ELF.Binary, moved: dict[int, int]) -> tuple[Section, ...]:
    """``moved``: true file offsets of what is elsewhere in the skeleton, by index."""
    return tuple(
        Section(
            index=index,
            name=str(s.name),
            type=_number(s.type),
            flags=int(s.flags),
            address=s.virtual_address,
            offset=moved.get(index, s.file_offset),
            size=s.size,
            link=s.link,
            info=s.information,
            entsize=s.entry_size,
        )
        for index, s in enumerate(binary.sections)
    )


def _segments(binary: lief.ELF.Binary) -> tuple[Segment, ...]:
    return tuple(
        Segment(
            _number(s.type),
            _number(s.flags),
            s.file_offset,
            s.virtual_address,
            s.physical_size,
            s.virtual_size,
        )
        for s in binary.segments
    )
