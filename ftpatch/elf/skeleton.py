# SPDX-License-Identifier: MIT
"""The headers of an ELF file, read as columns: all program headers at once, and all sections.

    | Ehdr | Phdr... | contents ................ | names | Shdr... |
             ^ e_phoff                           ^       ^ e_shoff
                                                 contents of section e_shstrndx

Layout: System V ABI, chapter 4 (ELF header, sections) and 5 (program header).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.byte_order import BIG, LITTLE, ByteOrder
from ftpatch.core.columns import among
from ftpatch.elf.headers import Section, Segment, Skeleton
from ftpatch.elf.known_files import what_is
from ftpatch.errors import InputError

__all__ = ["read_skeleton"]

EI_CLASS, EI_DATA, EI_NIDENT = 4, 5, 16
ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB = 1, 2, 1, 2
LIMIT_HEADERS = 1 << 20
"""Maximum product of the numbers of program and section headers; readers of both pair them."""
LIMIT_NAMES = 1 << 24
"""Maximum size of section names; a vmlinux has 4 KB, a library of 60,000 sections 3 MB."""
PN_XNUM, SHN_XINDEX = 0xFFFF, 0xFFFF


@dataclass(frozen=True, slots=True)
class _Layout:
    """The headers of one ELF class, of so many bits, as records."""

    bits: int
    order: ByteOrder
    header: np.dtype[np.void]
    program: np.dtype[np.void]
    section: np.dtype[np.void]


def _layout(word: str, order: ByteOrder) -> _Layout:
    """``word``: the type of addresses, offsets and sizes, in little-endian files."""
    return _Layout(
        64 if word == "<u8" else 32,
        order,
        *map(order.record, _records(word)),
    )


def _records(word: str) -> tuple[np.dtype[np.void], ...]:
    """Of a segment its flags stand second in 64 bits, where the words behind them stay aligned, and
    near the end in 32."""
    flags = [("flags", "<u4")]
    early, late = (flags, []) if word == "<u8" else ([], flags)
    return (
        np.dtype(
            [
                *(("ident", f"V{EI_NIDENT}"), ("type", "<u2"), ("machine", "<u2")),
                *(("version", "<u4"), ("entry", word), ("phoff", word), ("shoff", word)),
                *(("flags", "<u4"), ("ehsize", "<u2"), ("phentsize", "<u2"), ("phnum", "<u2")),
                *(("shentsize", "<u2"), ("shnum", "<u2"), ("shstrndx", "<u2")),
            ]
        ),
        np.dtype(
            [
                *(("type", "<u4"), *early, ("offset", word), ("vaddr", word), ("paddr", word)),
                *(("filesz", word), ("memsz", word), *late, ("align", word)),
            ]
        ),
        np.dtype(
            [
                *(("name", "<u4"), ("type", "<u4"), ("flags", word), ("addr", word)),
                *(("offset", word), ("size", word), ("link", "<u4"), ("info", "<u4")),
                *(("addralign", word), ("entsize", word)),
            ]
        ),
    )


_LAYOUT = {
    (kind, data): _layout(word, order)
    for kind, word in ((ELFCLASS32, "<u4"), (ELFCLASS64, "<u8"))
    for data, order in ((ELFDATA2LSB, LITTLE), (ELFDATA2MSB, BIG))
}


def read_skeleton(path: str, data: NDArray[np.uint8]) -> Skeleton:
    """Read the header, sections and segments of the ELF file with the bytes ``data`` (uint8[size]).

    Raises InputError for anything but ELF files, and for headers that are outside the file.
    """
    layout = _layout_of(path, data)
    size = len(data)
    if size < layout.header.itemsize:
        raise InputError(
            path, f"truncated: {size} bytes, but the ELF header takes {layout.header.itemsize}"
        )
    header = data[: layout.header.itemsize].view(layout.header)[0]
    shoff = int(header["shoff"])
    shnum = int(header["shnum"]) if shoff else 0
    phnum = int(header["phnum"])
    if shoff and (shnum == 0 or header["shstrndx"] == SHN_XINDEX or phnum == PN_XNUM):
        raise InputError(path, "extended section or segment numbering is not supported")
    for what, count, entry, wanted in (
        ("program", phnum, header["phentsize"], layout.program.itemsize),
        ("section", shnum, header["shentsize"], layout.section.itemsize),
    ):
        if count and entry != wanted:
            raise InputError(path, f"a {what} header has {entry} bytes, must be {wanted}")

    def part(what: str, offset: int, length: int) -> NDArray[np.uint8]:
        if offset + length > size:
            raise InputError(
                path,
                f"truncated: no room for the {what} at {offset:#x} ({length} bytes): "
                f"the file has only {size:#x}",
            )
        return data[offset : offset + length]

    if phnum * shnum > LIMIT_HEADERS:
        raise InputError(path, f"{phnum} program headers and {shnum} section headers")

    length = phnum * layout.program.itemsize
    programs = part("program headers", int(header["phoff"]), length).view(layout.program)
    length = shnum * layout.section.itemsize
    sections = part("section headers", shoff, length).view(layout.section)
    names: list[str] = []
    if shnum:
        if header["shstrndx"] >= shnum:
            where = f"section {header['shstrndx']} of {shnum}"
            raise InputError(path, f"invalid section-name table: {where}")
        table = sections[header["shstrndx"]]
        held = part("section-name table", int(table["offset"]), int(table["size"]))
        names = _names(path, sections["name"], held.tobytes())
    _require_contents(path, programs, sections, size)
    return Skeleton(
        elf_class=layout.bits,
        machine=int(header["machine"]),
        type=int(header["type"]),
        sections=tuple(_sections(sections, names)),
        segments=tuple(_segments(programs)),
        section_headers=shoff if shnum else 0,
        order=layout.order,
    )


def _layout_of(path: str, data: NDArray[np.uint8]) -> _Layout:
    """The layout that e_ident says. Raises InputError for what is not supported."""
    ident = data[:EI_NIDENT].tobytes()
    if ident[:4] != b"\x7fELF":
        known = what_is(data.data)
        if known is not None:
            raise InputError(path, f"{known.name}, not an ELF file", known.advice)
        raise InputError(path, "not an ELF file", "use a kernel, a module, a program or a library")
    if len(ident) < EI_NIDENT or ident[EI_CLASS] not in (ELFCLASS32, ELFCLASS64):
        raise InputError(path, "the ELF header is truncated or has an unknown class")
    if ident[EI_DATA] not in (ELFDATA2LSB, ELFDATA2MSB):
        raise InputError(path, f"invalid EI_DATA {ident[EI_DATA]}")
    return _LAYOUT[ident[EI_CLASS], ident[EI_DATA]]


def _names(path: str, start: NDArray[np.uint32], table: bytes) -> list[str]:
    """The names that begin at ``start`` uint32[n]; one outside the table is empty. Raises
    InputError where they add up to more than any real file has: all may share one long string."""
    ends = np.flatnonzero(np.frombuffer(table, np.uint8) == 0)
    begin = np.minimum(start.astype(np.int64), len(table))
    end = np.append(ends, len(table))[np.searchsorted(ends, begin)]
    if int((end - begin).sum()) > LIMIT_NAMES:
        raise InputError(path, "its section names are too long")
    spans = zip(begin.tolist(), end.tolist(), strict=True)
    return [table[first:last].decode("utf-8", "backslashreplace") for first, last in spans]


def _require_contents(
    path: str, programs: NDArray[np.void], sections: NDArray[np.void], size: int
) -> None:
    """Raise InputError for contents that are outside the file."""
    loaded = programs["type"] == Segment.PT_LOAD
    for row in np.flatnonzero(loaded & _outside(programs, "filesz", size))[:1]:
        _refuse(path, "a segment", programs[row]["offset"], programs[row]["filesz"], size)
    stored = ~among(sections["type"], (Section.SHT_NULL, Section.SHT_NOBITS))
    for row in np.flatnonzero(stored & _outside(sections, "size", size))[:1]:
        _refuse(path, f"section {row}", sections[row]["offset"], sections[row]["size"], size)


def _outside(headers: NDArray[np.void], length: str, size: int) -> NDArray[np.bool_]:
    """Mark the headers whose contents are not all in a file of ``size`` bytes. Their end may be
    beyond 64 bits."""
    offset = headers["offset"].astype(np.uint64)
    room = np.uint64(size) - np.minimum(offset, np.uint64(size))
    return np.asarray((offset > np.uint64(size)) | (headers[length] > room))


def _refuse(path: str, what: str, offset: int, length: int, size: int) -> NoReturn:
    needed = f"at {offset:#x} needs {length:#x} bytes"
    raise InputError(path, f"truncated: {what} {needed}, but the file has only {size:#x}")


def _sections(headers: NDArray[np.void], names: Sequence[str]) -> Iterator[Section]:
    fields = ("type", "flags", "addr", "offset", "size", "link", "info", "entsize")
    columns = (headers[field].tolist() for field in fields)
    rows = zip(names, *columns, strict=True)
    for index, (name, type_, flags, address, offset, size, link, info, entsize) in enumerate(rows):
        yield Section(
            index=index,
            name=name,
            type=type_,
            flags=flags,
            address=address,
            offset=offset,
            size=size,
            link=link,
            info=info,
            entsize=entsize,
        )


def _segments(headers: NDArray[np.void]) -> Iterator[Segment]:
    fields = ("type", "flags", "offset", "vaddr", "filesz", "memsz")
    rows = zip(*(headers[field].tolist() for field in fields), strict=True)
    for type_, flags, offset, address, size, memory_size in rows:
        yield Segment(type_, flags, offset, address, size, memory_size)
