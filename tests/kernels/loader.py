# SPDX-License-Identifier: MIT
"""A vmlinux for QEMU where it boots a zImage only (32-bit ARM).

QEMU starts an ELF file at its entry, with a device tree at the beginning of its memory, of which it
does not tell the kernel. So the file gets segments at addresses that there are, and starts where
registers are set as Documentation/arch/arm/booting.rst has them:

    | ELF header, program headers | mov r0, 0; mvn r1, 0; mov r2, tree; ldr pc, entry | segments |
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elftools.elf.elffile import ELFFile

__all__ = ["started"]

MEMORY = 0x4000_0000  # of QEMU's virt
VIRTUAL = 0xC000_0000  # PAGE_OFFSET
START = 0x6000_0000  # behind the kernel
HEADER, SEGMENT = struct.Struct("<4sBBB9xHHIIIIIHHHHHH"), struct.Struct("<IIIIIIII")
ALIGN = 0x1_0000


@contextmanager
def started(vmlinux: Path, scratch: Path) -> Iterator[Path]:
    """What QEMU starts, while it is needed."""
    image = scratch / f"{vmlinux.name}.started"
    _write(vmlinux, image)
    try:
        yield image
    finally:
        image.unlink()


def _write(vmlinux: Path, out: Path) -> None:
    with vmlinux.open("rb") as file:
        elf = ELFFile(file)
        entry = elf.header["e_entry"] - VIRTUAL + MEMORY
        code = struct.pack(
            "<5I",
            0xE3A0_0000,  # mov r0, #0
            0xE3E0_1000,  # mvn r1, #0
            0xE3A0_2101,  # mov r2, #0x40000000
            0xE51F_F004,  # ldr pc, [pc, #-4]
            entry,
        )
        parts = [(START, code, len(code))]
        for segment in elf.iter_segments("PT_LOAD"):
            place = segment["p_paddr"] - VIRTUAL + MEMORY
            parts.append((place, segment.data(), segment["p_memsz"]))
    about = 2, 40, 1, START, HEADER.size, 0, 0x0500_0000  # ET_EXEC, EM_ARM
    head = HEADER.pack(b"\x7fELF", 1, 1, 1, *about, HEADER.size, SEGMENT.size, len(parts), 0, 0, 0)
    offset, body = ALIGN, b""
    for place, data, size in parts:
        offset += (place - offset) % ALIGN
        body += bytes(offset - ALIGN - len(body)) + data
        head += SEGMENT.pack(1, offset, place, place, len(data), size, 7, ALIGN)
        offset += len(data)
    out.write_bytes(head.ljust(ALIGN, b"\0") + body)
