# SPDX-License-Identifier: MIT
"""A vmlinux of IBM Z in a bzImage, without any of ftpatch's code: its decompressor alone can start
it, so the one of the same build as it is installed gets another payload.

The decompressor adds to each word that its list of relocations names how far it moved the kernel;
the words of dropped records must stay null, so their entries are led to the last eight bytes
before .bss, which belong to nothing. Debian's payload leaves no room for a kernel whose sites all
differ: here .BTF is zeros, which nothing in these boots reads; that makes room.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zstandard

from .independent import Vmlinux
from .qemu import PREFIX

__all__ = ["boxed", "memory_of"]

BASE = 0x10_0000  # address of the payload's first byte
MAGIC = b"\x28\xb5\x2f\xfd"  # of zstd
LEVEL = 12
TRAILER = 32  # bytes at the end of a bzImage, for Secure Boot


@contextmanager
def boxed(vmlinux: Path, box: Path, scratch: Path) -> Iterator[Path]:
    """The bzImage ``box`` with this vmlinux in it, in ``scratch``."""
    made = scratch / f"{vmlinux.name}.bzImage"
    made.write_bytes(_filled(box.read_bytes(), vmlinux, scratch))
    try:
        yield made
    finally:
        made.unlink()


def _filled(outer: bytes, vmlinux: Path, scratch: Path) -> bytes:
    image = Vmlinux(vmlinux)
    _, info, _ = image.sections[".vmlinux.info"]  # arch/s390/boot/boot.h: entry, image_size, ...
    nowhere = BASE + int.from_bytes(image.data[info + 8 : info + 16].tobytes(), "big") - 8
    memory = bytearray(memory_of(vmlinux, image.arch, scratch))
    at = outer.rindex(MAGIC)
    held = zstandard.ZstdDecompressor().decompressobj().decompress(outer[at:])
    assert len(held) == len(memory), "another kernel's bzImage"
    listed = np.frombuffer(outer[: at // 4 * 4], ">u4").astype(np.int64)
    listed = listed[: len(listed) - (not listed[-1])]  # what aligns the payload
    assert BASE + len(memory) <= nowhere
    other = (listed < BASE) | (listed >= nowhere) | (np.diff(listed, append=nowhere) <= 0)
    begins = int(np.flatnonzero(other)[-1]) + 1
    dropped = image.table[0] + 8 * np.flatnonzero(image.records == 0)
    relocations = listed[begins:].copy()
    gone = np.isin(relocations, dropped)
    assert gone.sum() == len(dropped), "each record has a relocation"
    relocations[gone] = nowhere
    start, _, size = image.sections[".BTF"]
    memory[start - BASE : start - BASE + size] = bytes(size)
    stream = zstandard.ZstdCompressor(level=LEVEL).compress(bytes(memory))
    room = len(outer) - TRAILER - at
    assert len(stream) <= room, f"{len(stream)} bytes in {room}"
    out = bytearray(outer)
    out[4 * begins : 4 * len(listed)] = relocations.astype(">u4").tobytes()
    out[at : len(outer) - TRAILER] = stream.ljust(room, b"\0")
    return bytes(out)


def memory_of(vmlinux: Path, arch: str, scratch: Path) -> bytes:
    """As the kernel's Makefile makes the payload of the vmlinux, of IBM Z and of 32-bit ARM."""
    flat = scratch / f"{vmlinux.name}.flat"
    tool = f"{PREFIX[arch]}objcopy"
    subprocess.run([tool, "-O", "binary", "-R", ".comment", "-S", vmlinux, flat], check=True)
    try:
        return flat.read_bytes()
    finally:
        flat.unlink()
