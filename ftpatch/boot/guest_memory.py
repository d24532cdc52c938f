# SPDX-License-Identifier: MIT
"""A machine's memory as a file: how large it is, and where QEMU puts what of a kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from ftpatch.arch.boot import Emulator
from ftpatch.elf.headers import Segment
from ftpatch.elf.segments import ProgramHeaders
from ftpatch.errors import UsageError
from ftpatch.image import Image

__all__ = ["memory_size", "offset_in_memory", "shared_memory"]

UNITS = {"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Bytes of the units of -m; without one, it counts MiB."""
SIZE = re.compile(r"(?:size=)?(\d+)([bkmgt]?)(?:,.*)?", re.IGNORECASE)
ALIGNED = 1 << 21
"""An Image lies so many bytes above the start of memory if it asks for less than a page
(hw/arm/boot.c, ``load_aarch64_image()``)."""
PAGE = 4096
TEXT_OFFSET = slice(8, 16)
"""Offset of the field of an Image's header that asks for it (Documentation/arm64/booting.rst)."""


def memory_size(emulator: Emulator, words: Sequence[str]) -> int:
    """Bytes of memory, by the last -m of the user's ``words``, or ours. Raises UsageError."""
    text = "0"
    every = [*emulator.words, *words]
    for word, value in itertools.pairwise(every):
        if word in ("-m", "--m"):
            text = value
    found = SIZE.fullmatch(text)
    if found is None or not int(found[1]):
        raise UsageError(None, f"-m {text}: unsupported size", "use -m 1G, or --sink")
    return int(found[1]) * UNITS[found[2].lower()]


def shared_memory(file: int, size: int) -> list[str]:
    """QEMU's words for memory that is the inherited descriptor ``file``."""
    backend = f"memory-backend-file,id=ftpatch,share=on,mem-path=/proc/self/fd/{file},size={size}"
    return ["-object", backend, "-machine", "memory-backend=ftpatch"]


def offset_in_memory(kernel: Image, flat: bytes, address: int) -> int:
    """Return the distance of a kernel's address from the start of memory. ``flat``: the kernel as
    QEMU gets it if not as ELF."""
    if flat:
        wanted = int.from_bytes(flat[TEXT_OFFSET], "little")
        segments = kernel.elf.skeleton.segments
        first = min(s.address for s in segments if s.type == Segment.PT_LOAD and s.size)
        return address - first + (wanted if wanted >= PAGE else wanted + ALIGNED)
    for row in ProgramHeaders(kernel.elf).loads:
        if 0 <= address - int(row["vaddr"]) < int(row["memsz"]):
            return address - int(row["vaddr"]) + int(row["paddr"])
    raise UsageError(kernel.path, "its data is in no segment", "use --sink debugcon")
