# SPDX-License-Identifier: MIT
"""The kernel as arm64, riscv64 and loongarch64 boot it: an Image, its memory behind a small header.

    arm64   Documentation/arch/arm64/booting.rst     riscv64   .../arch/riscv/boot-image-header.rst
    0x00  code0, code1 (4 bytes each)                the same
    0x08  text_offset (8)                            the same
    0x10  image_size (8), with what is zero          the same
    0x18  flags (8); bit 0: big-endian               the same
    0x30  0                                          'RISCV' 00 00 00 (v2: deprecated)
    0x38  'ARM' 64                                   'RSC' 05
    0x3c  where a PE header is (4), if any           the same

It has no sections, no segments and no symbols. Where it is linked, where its relocations are and
what its functions are called is found by content, and told as an ELF file would.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.raw_image import raw_images
from ftpatch.elf.elf_file import Elf
from ftpatch.elf.headers import Section, Segment, Skeleton
from ftpatch.elf.relocations import Form, read_relocations
from ftpatch.errors import InputError
from ftpatch.image.kallsyms.own_symbols import OwnSymbols, read_own_symbols
from ftpatch.image.link_base import find_link_base
from ftpatch.image.raw_relocations import find_relocations

__all__ = ["RawImage", "is_raw_image", "kernel_version", "read_raw_image"]

HEADER = 0x40
"""Size of the header, up to the PE header's offset (bytes)."""
MAGIC_AT = 0x38
PF_R, PF_W = 4, 2
PE = b"PE\0\0"
SHT_PROGBITS = 1
BIG_ENDIAN = 1
LIMIT_MEMORY = 1 << 31
"""Maximum size of a kernel in memory: the reach of branches and adrp."""
LIMIT_FILE = 1 << 29
"""Maximum bytes of an Image to search; a kernel with everything built in has 300 MB."""
VERSION = re.compile(rb"Linux version ([0-9][\x21-\x7e]{0,63}) ")


TABLES = {
    Form.RELA: (".rela.dyn", Section.SHT_RELA, Section.SHF_ALLOC, 24),
    Form.RELR: (".relr.dyn", Section.SHT_RELR, Section.SHF_ALLOC, 8),
}
"""Name, sh_type, sh_flags and sh_entsize, by Form."""
TEXT = ((".text", "_stext", "_etext"), (".init.text", "_sinittext", "_einittext"))
"""is_kernel_text() and is_kernel_inittext() (include/linux/kallsyms.h)."""


@dataclass(frozen=True)
class RawImage:
    """``elf``: the Image with the headers of a linked kernel: one segment, its text as sections if
    the kernel names its bounds, its relocation tables as sections. ``own``: its symbols, None if it
    carries none."""

    elf: Elf
    own: OwnSymbols | None


def is_raw_image(data: memoryview) -> bool:
    """Return whether the bytes are an Image of a known machine."""
    return len(data) >= HEADER and data[MAGIC_AT : MAGIC_AT + 4].tobytes() in raw_images()


def read_raw_image(path: Path, data: NDArray[np.uint8]) -> RawImage:
    """Read an Image (uint8[size]). Raises InputError for one that is big-endian, claims more memory
    than a kernel can take, or whose link address cannot be found."""
    if not is_raw_image(data.data):
        raise InputError(path, "not an Image of a supported machine")
    arch, header = raw_images()[data[MAGIC_AT : MAGIC_AT + 4].tobytes()]
    text_offset, memory, flags = (int(n) for n in data[8:32].view("<u8"))
    if flags & BIG_ENDIAN:
        raise InputError(path, "a big-endian Image is not supported")
    if text_offset == header.not_offset:
        raise InputError(path, "an Image of a 32-bit kernel is not supported")
    size = _size(data)
    if size > LIMIT_FILE:
        raise InputError(path, f"an Image of {size} bytes is too large for a kernel")
    memory = max(memory, size)  # arm64 left it 0 before v3.17
    if memory > LIMIT_MEMORY:
        raise InputError(path, f"an Image of {memory:#x} bytes in memory is too large for a kernel")
    base = find_link_base(data[:size], memory, header.lowest)
    if base is None:
        raise InputError(path, "cannot find the link address of this Image")
    tables = [
        _section(TABLES[kind], base, base + offset, size)
        for kind, offset, size in find_relocations(data[:size], base, memory, arch.relative)
    ]
    segment = Segment(Segment.PT_LOAD, PF_R | PF_W | Segment.PF_X, 0, base, size, memory)
    moves = Skeleton.ET_DYN if tables else Skeleton.ET_EXEC
    elf = Elf(path, data, Skeleton(64, arch.machine, moves, _numbered(tables), (segment,)))
    own = read_own_symbols(elf, read_relocations(elf))
    text = _text(own, path, base, size) if own is not None else []
    skeleton = replace(elf.skeleton, sections=_numbered([*text, *tables]))
    return RawImage(Elf(path, data, skeleton), own)


def kernel_version(data: NDArray[np.uint8]) -> str:
    """Read a kernel's release (``uname -r``) from its banner; empty without one."""
    found = VERSION.search(data.data)
    return found[1].decode("ascii") if found else ""


def _size(data: NDArray[np.uint8]) -> int:
    """Bytes of the Image itself. A PE header names its parts; behind them may be a signature.

    PE 00 00 | machine, sections (2 each) | 12 bytes | size of what follows (2) | 2 bytes | ...
    section: name (8) | memory (8) | size in the file, place in the file (4 each) | 16 bytes
    """
    start = int.from_bytes(data[HEADER - 4 : HEADER].tobytes(), "little")
    header = data[start : start + 24].tobytes()
    if header[:4] != PE or len(header) < 24:
        return len(data)
    (count,), (optional,) = (
        struct.unpack_from("<H", header, 6),
        struct.unpack_from("<H", header, 20),
    )
    table = data[start + 24 + optional :][: 40 * count].tobytes()
    ends = [sum(struct.unpack_from("<II", table, at + 16)) for at in range(0, len(table) - 39, 40)]
    return min(max(ends, default=0) or len(data), len(data))


def _text(own: OwnSymbols, path: Path, base: int, size: int) -> list[Section]:
    """The sections of code, between the bounds by which the kernel itself tests addresses."""
    symbols = own.symbols(path)
    sections = []
    for name, start, end in TEXT:
        low, high = symbols.find(start), symbols.find(end)
        if low is None and high is not None:
            # scripts/kallsyms.c drops what stands where _etext does (symbol_valid).
            low = symbols.find(TEXT[0][2])
        if low is not None and high is not None and base <= low < high <= base + size:
            kind = (name, SHT_PROGBITS, Section.SHF_ALLOC | Section.SHF_EXECINSTR, 0)
            sections.append(_section(kind, base, low, high - low))
    return sections


def _section(what: tuple[str, int, int, int], base: int, address: int, size: int) -> Section:
    """A section of an Image that is loaded at ``base``: (name, type, flags, size of an entry)."""
    name, kind, flags, entry = what
    return Section(
        index=0,
        name=name,
        type=kind,
        flags=flags,
        address=address,
        offset=address - base,
        size=size,
        link=0,
        info=0,
        entsize=entry,
    )


def _numbered(sections: list[Section]) -> tuple[Section, ...]:
    return tuple(replace(section, index=index) for index, section in enumerate(sections))
