# SPDX-License-Identifier: MIT
"""Kernels without symbols, as they are booted: are they read as the vmlinux with symbols is.

What a kernel says of itself is compared with kallsyms.py, which finds the same tables by symbols,
and with the symbol table that the link editor wrote.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.relocations import read_relocations
from ftpatch.image.kallsyms.own_symbols import OwnSymbols, read_own_symbols
from ftpatch.image.payload import read_payload
from ftpatch.image.raw_image import read_raw_image
from tests.support.boot_images import bzimage, zboot

from .independent import Vmlinux
from .qemu import OBJCOPY, PREFIX, need

# As scripts/Makefile.lib calls them, but for their strength.
PACKERS = {
    "gzip": ["gzip", "-n", "-1"],
    "bzip2": ["bzip2", "-1"],
    "lzma": ["xz", "--format=lzma", "-0"],
    "xz": ["xz", "--check=crc32", "--x86", "--lzma2=preset=0"],
    "lz4": ["lz4", "-l", "-1", "-"],
    "zstd": ["zstd", "-1"],
}


def _objcopy(image: Vmlinux, out: Path, *words: str) -> Path:
    tool = f"{PREFIX[image.arch]}objcopy"
    need(tool)
    subprocess.run([tool, *words, image.path, out], check=True, capture_output=True)
    return out


@pytest.fixture(scope="session")
def stripped(image: Vmlinux, scratch: Path) -> Iterator[Path]:
    path = _objcopy(image, scratch / f"{image.path.parent.name}.stripped", "--strip-all")
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def raw(image: Vmlinux, scratch: Path) -> Iterator[Path]:
    """The Image; of other architectures, nothing."""
    path = scratch / f"{image.path.parent.name}.Image"
    if image.arch in OBJCOPY:
        _objcopy(image, path, "-O", "binary", "-S")
    yield path
    path.unlink(missing_ok=True)


def _assert_is_kallsyms(own: OwnSymbols | None, image: Vmlinux) -> None:
    assert own is not None
    assert (own.address[1:] >= own.address[:-1]).all()
    text = own.strings.tobytes().split(b"\0")[1:-1]
    names = [name.decode() for name in text]
    assert len(names) == len(own)
    assert own.name.tolist() == np.cumsum([1, *(len(name) + 1 for name in text[:-1])]).tolist()
    # Against the tables that symbols name: all that have one address, in their order.
    shared = ~np.isin(own.kind, np.frombuffer(b"Aa", np.uint8))
    rows = np.flatnonzero(shared)
    starts, first = np.unique(own.address[rows], return_index=True)
    expected = image.kallsyms.aliases(starts)
    bounds = [*first.tolist(), len(rows)]
    for low, high, wanted in zip(bounds, bounds[1:], expected, strict=False):
        assert [names[row] for row in rows[low:high]] == wanted
    # Against what the link editor wrote.
    table, strings = image._symbols
    defined = table[table["shndx"] != 0]
    every = {
        (int(value), strings[at : strings.index(b"\0", at)])
        for value, at in zip(defined["value"].tolist(), defined["name"].tolist(), strict=True)
    }
    missing = set(zip(own.address.tolist(), text, strict=True)) - every
    assert not missing, sorted(missing)[:5]


def test_a_stripped_vmlinux_names_its_functions(image: Vmlinux, stripped: Path) -> None:
    elf = Elf.read(stripped, np.fromfile(stripped, np.uint8))
    _assert_is_kallsyms(read_own_symbols(elf, read_relocations(elf)), image)


@pytest.mark.parametrize("kind", PACKERS)
def test_every_compression(sampled: Vmlinux, stripped: Path, raw: Path, kind: str) -> None:
    """x86: a bzImage; the others: a compressed Image, and an EFI zboot image."""
    if sampled.arch not in (*OBJCOPY, "x86_64", "i386"):
        pytest.skip(f"{sampled.arch} has no Image, and its own container: test_installed.py")
    need(PACKERS[kind][0])
    boxed = sampled.arch not in OBJCOPY
    inner = stripped if boxed else raw
    with inner.open("rb") as file:
        stream = subprocess.run(PACKERS[kind], stdin=file, check=True, capture_output=True).stdout
    size = b"" if kind == "gzip" else struct.pack("<I", inner.stat().st_size)
    made = [bzimage(stream + size)] if boxed else [stream, zboot(stream + size, len(stream), kind)]
    for whole in made:
        found = read_payload("kernel", memoryview(whole))
        assert (found.container and found.container.name) == ("bzImage" if boxed else "Image")
        assert [layer.compression for layer in found.layers] == [kind]
        assert found.data.tobytes() == inner.read_bytes()


def test_an_image_reads_as_its_vmlinux(image: Vmlinux, raw: Path) -> None:
    if image.arch not in OBJCOPY:
        pytest.skip("an Image is arm64's and riscv64's")
    read = read_raw_image(raw, np.fromfile(raw, np.uint8))
    (load,) = read.elf.skeleton.segments
    assert load.address == image.sections[".head.text"][0]
    assert load.address + load.memory_size == image.address("_end")
    assert load.size == len(read.elf.data)
    sections = {s.name: (s.address, s.size) for s in read.elf.sections}
    for name in (".rela.dyn", ".relr.dyn"):
        address, _, size = image.sections.get(name, (0, 0, 0))
        assert sections.get(name, (0, 0)) == ((address, size) if size else (0, 0))
    for name, low, high in (
        (".text", "_stext", "_etext"),
        (".init.text", "_sinittext", "_einittext"),
    ):
        start, stop = image.address(low), image.address(high)
        assert sections[name] == (start, stop - start)
    _assert_is_kallsyms(read.own, image)
