# SPDX-License-Identifier: MIT
"""Everything that may stand around a kernel, for tests: how each is packed, and what is inside."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import lz4.block
import zstandard

from tests.support.boot_images import bzimage, zboot

__all__ = ["ELF_BOXES", "FEW", "IMAGE_BOXES", "PACKERS", "Box", "sized"]

X86_FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "dict_size": 32 << 20}]
ZSTD = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)


def _lz4(data: bytes) -> bytes:
    out = b"\x02\x21\x4c\x18"
    for at in range(0, len(data), 8 << 20):
        block = bytes(
            lz4.block.compress(data[at : at + (8 << 20)], "high_compression", store_size=False)
        )
        out += struct.pack("<I", len(block)) + block
    return out


# As scripts/Makefile.lib calls the packers, but for their strength.
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "xz": lambda data: lzma.compress(data, check=lzma.CHECK_CRC32, filters=X86_FILTERS),
    "lz4": _lz4,
    "zstd": ZSTD.compress,
}
SUFFIXES = {
    "gzip": ".gz",
    "bzip2": ".bz2",
    "lzma": ".lzma",
    "xz": ".xz",
    "lz4": ".lz4",
    "zstd": ".zst",
}


def sized(kind: str, data: bytes) -> bytes:
    """A stream with the size behind that it unpacks to; gzip has it anyway."""
    return PACKERS[kind](data) + (b"" if kind == "gzip" else struct.pack("<I", len(data)))


@dataclass(frozen=True)
class Box:
    """``name`` of a file, the ``container`` that it is called, what extract names the ``layers``,
    and ``extracted``: the name of what is inside."""

    name: str
    container: str
    layers: tuple[str, ...]
    extracted: str
    pack: Callable[[bytes], bytes] = field(repr=False)


def _bzimages() -> Iterator[Box]:
    for kind in PACKERS:
        name = f"vmlinuz-{kind}"

        def pack(data: bytes, kind: str = kind) -> bytes:
            return bzimage(sized(kind, data))

        yield Box(name, "bzImage", ("bzImage",), f"{name}.elf", pack)


def _zboots() -> Iterator[Box]:
    for kind in PACKERS:
        name = f"vmlinuz-{kind}.efi"

        def pack(data: bytes, kind: str = kind) -> bytes:
            return zboot(sized(kind, data), len(PACKERS[kind](data)), kind)

        yield Box(name, "Image", ("zboot",), f"{name}.Image", pack)


def _packed(inner: str, container: str) -> Iterator[Box]:
    for kind, suffix in SUFFIXES.items():
        yield Box(inner + suffix, container, (kind,), inner, PACKERS[kind])


def _gzipped(box: Box) -> Box:
    def pack(data: bytes) -> bytes:
        return PACKERS["gzip"](box.pack(data))

    return Box(f"{box.name}.gz", box.container, ("gzip", *box.layers), box.name, pack)


def _named(*boxes: Box) -> dict[str, Box]:
    return {box.name: box for box in boxes}


_BZIMAGES, _ZBOOTS = tuple(_bzimages()), tuple(_zboots())
ELF_BOXES = _named(*_BZIMAGES, *_packed("vmlinux", "vmlinux"), _gzipped(_BZIMAGES[3]))
IMAGE_BOXES = _named(*_ZBOOTS, *_packed("Image", "Image"), _gzipped(_ZBOOTS[-1]))
"""What holds an ELF file, and what holds an Image, by name."""
FEW = (
    "vmlinuz-xz",
    "vmlinuz-zstd",
    "vmlinux.lz4",
    "vmlinuz-xz.gz",
    "vmlinuz-gzip.efi",
    "Image.bz2",
)
"""Some of all, where each takes many commands."""
