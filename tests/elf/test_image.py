# SPDX-License-Identifier: MIT
"""Headers and segments against pyelftools and readelf; what is broken is an InputError."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.elf.elf_file import MAX_MAPPED
from ftpatch.elf.skeleton import read_skeleton
from ftpatch.errors import InputError
from ftpatch.image import Image as Opened
from ftpatch.image import open_image
from tests.support.command import ftpatch
from tests.support.elf_writer import Image, Section, Segment
from tests.support.images import fentry_kernel, pad_program
from tests.support.samples import SAMPLES, Sample

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


@every_sample
def test_sections_and_segments_are_pyelftools_s(sample: Sample) -> None:
    image = open_image(sample.path)
    with sample.path.open("rb") as file:
        elf = ELFFile(file)
        sections = [
            tuple(s[f"sh_{field}"] for field in ("flags", "addr", "offset", "size", "link"))
            for s in elf.iter_sections()
        ]
        names = [s.name for s in elf.iter_sections()]
        segments = [
            tuple(s[f"p_{field}"] for field in ("flags", "offset", "vaddr", "filesz", "memsz"))
            for s in elf.iter_segments()
        ]
        assert image.elf.word * 8 == elf.elfclass
        wanted = elf.get_section_by_name(".text")
    found = image.elf.sections
    assert [s.name for s in found] == names
    assert [(s.flags, s.address, s.offset, s.size, s.link) for s in found] == sections
    assert [
        (s.flags, s.offset, s.address, s.size, s.memory_size) for s in image.elf.skeleton.segments
    ] == segments
    text = image.elf.section(".text")
    assert (text is None) == (wanted is None)
    assert image.container.name == sample.expected["container"]


@every_sample
def test_numbers_of_types_are_readelf_s(sample: Sample) -> None:
    """Those that readelf has no name for, too: it prints their numbers."""
    data, image = sample.data, open_image(sample.path)
    wide = image.elf.word == 8
    offset, size, at = (32, 56, 40) if wide else (28, 32, 32)
    phoff = int.from_bytes(data[offset : offset + image.elf.word], "little")
    shoff = int.from_bytes(data[at : at + image.elf.word], "little")
    count = len(image.elf.skeleton.segments)
    types = [struct.unpack_from("<I", data, phoff + i * size)[0] for i in range(count)]
    assert [s.type for s in image.elf.skeleton.segments] == types
    size = 64 if wide else 40
    types = [
        struct.unpack_from("<I", data, shoff + i * size + 4)[0]
        for i in range(len(image.elf.sections))
    ]
    assert [s.type for s in image.elf.sections] == types
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed (binutils)")
    shown = subprocess.check_output(["readelf", "-hW", sample.path], text=True)
    headers = {k.strip(): v.strip() for k, v in re.findall(r"^ *([^:\n]+):(.*)$", shown, re.M)}
    assert int(headers["Number of program headers"]) == count
    assert int(headers["Number of section headers"].split()[0]) == len(image.elf.sections)


@every_sample
def test_every_truncation_of_the_headers_is_refused(sample: Sample) -> None:
    data = np.frombuffer(sample.data, np.uint8)
    elf = read_skeleton("image", data)
    wide = elf.elf_class == 64
    first = (64 + 56 * len(elf.segments)) if wide else (52 + 32 * len(elf.segments))
    last = len(data) - (64 if wide else 40) * len(elf.sections)
    tail = range(last - 64, len(data)) if elf.sections else range(0)
    for end in [*range(1, first), *tail]:
        with pytest.raises(InputError) as caught:
            read_skeleton("image", data[:end])
        assert "\n" not in str(caught.value)


@every_sample
def test_truncated_contents_are_refused(sample: Sample, tmp_path: Path) -> None:
    path, data = tmp_path / "image", sample.data
    # Section headers come last; without them it is the segments that must be whole.
    image = open_image(sample.path)
    loaded = max(s.offset + s.size for s in image.elf.skeleton.segments)
    last = len(data) if image.elf.sections else loaded
    for end in (0, last // 3, last // 2, last - 1):
        path.write_bytes(data[:end])
        with pytest.raises(InputError):
            open_image(path)


def _reason(image: Image | bytes, path: Path) -> str:
    path.write_bytes(image if isinstance(image, bytes) else image.build())
    with pytest.raises(InputError) as caught:
        opened: Opened = open_image(path)
        _ = opened.relocations, opened.symbols
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"e_phoff": 1 << 40}, "program headers"),
        ({"e_shoff": 1 << 40}, "section headers"),
        ({"e_shoff": (1 << 64) - 32}, "section headers"),
        ({"e_phnum": 0xFFFE}, "program headers"),
        ({"e_phnum": 0xFFFF}, "extended"),
        ({"e_shnum": 0xFEFF}, "section headers"),
        ({"e_shnum": 0}, "extended"),
        ({"e_shstrndx": 99}, "section-name table"),
        ({"e_shstrndx": 0xFFFF}, "extended"),
        ({"e_phentsize": 57}, "a program header has 57"),
        ({"e_phentsize": 0}, "a program header has 0"),
        ({"e_shentsize": 40}, "a section header has 40"),
        ({"e_type": 4}, "ELF type 4"),
        ({"e_type": 0xFE00}, "ELF type"),
    ],
)
def test_malformed_headers(header: dict[str, int], words: str, tmp_path: Path) -> None:
    image = pad_program()
    image.header = header
    assert words in _reason(image, tmp_path / "image")


@pytest.mark.parametrize(
    ("ident", "words"),
    [
        ({0: 0x7E}, "not an ELF file"),
        ({4: 0}, "class"),
        ({4: 3}, "class"),
        ({5: 0}, "EI_DATA"),
        ({5: 9}, "EI_DATA"),
    ],
)
def test_malformed_identification(ident: dict[int, int], words: str, tmp_path: Path) -> None:
    image = pad_program()
    image.ident = ident
    assert words in _reason(image, tmp_path / "image")


@pytest.mark.parametrize("bits", [32, 64])
def test_big_endian_is_refused_as_such(bits: int, tmp_path: Path) -> None:
    image = Image(20, bits, big=True, sections=[Section(".text", b"\x60\0\0\0")])
    path = tmp_path / "image"
    path.write_bytes(image.build())
    reason = f"a {bits}-bit big-endian PowerPC ELF file, which is not supported"
    assert reason in ftpatch("status", path).err


@pytest.mark.parametrize(("machine", "bits"), [(62, 64), (183, 64), (3, 32)])
def test_an_order_that_its_machine_does_not_have(machine: int, bits: int, tmp_path: Path) -> None:
    image = Image(machine, bits, big=True, sections=[Section(".text", bytes(16))])
    reason = _reason(image, tmp_path / "image")
    assert reason.endswith("ELF file, which is not supported") and "big-endian" in reason


@pytest.mark.parametrize(
    ("name", "header", "words"),
    [
        (".text", {"sh_offset": 1 << 32}, "section 1"),
        (".text", {"sh_size": 1 << 32}, "section 1"),
        (".text", {"sh_size": (1 << 64) - 1}, "section 1"),
        (".init.data", {"sh_offset": (1 << 64) - 8}, "section 2"),
    ],
)
def test_a_section_outside_is_refused(
    name: str, header: dict[str, int], words: str, tmp_path: Path
) -> None:
    image = fentry_kernel()
    next(s for s in image.sections if s.name == name).header = header
    assert words in _reason(image, tmp_path / "image")


@pytest.mark.parametrize("header", [{"p_filesz": 1 << 40}, {"p_offset": 1 << 40}])
def test_a_segment_outside_is_refused(header: dict[str, int], tmp_path: Path) -> None:
    image = fentry_kernel()
    image.segments[0].header = header
    assert "a segment at" in _reason(image, tmp_path / "image")


def test_unknown_numbers_are_the_file_s(tmp_path: Path) -> None:
    """Types and flags that nobody has named, and what pyelftools reads of them."""
    image, path = fentry_kernel(), tmp_path / "vmlinux"
    image.segments[0].header = {"p_flags": 0x7F00_0007}
    image.sections[1].header = {"sh_type": 0x6FFF_1234, "sh_flags": 0xF00F_0000_0002}
    path.write_bytes(image.build())
    with path.open("rb") as file:
        elf = ELFFile(file)
        headers = [(s["sh_type"], s["sh_flags"]) for s in elf.iter_sections()]
        flags = [s["p_flags"] for s in elf.iter_segments()]
    skeleton = read_skeleton("vmlinux", np.fromfile(path, np.uint8))
    assert (skeleton.sections[2].type, skeleton.sections[2].flags) == headers[2]
    assert headers[2] == (0x6FFF_1234, 0xF00F_0000_0002)
    assert [s.flags for s in skeleton.segments] == flags and flags[0] == 0x7F00_0007


@pytest.mark.parametrize("start", [1 << 20, (1 << 32) - 1])
def test_a_name_outside_the_table_is_empty(start: int, tmp_path: Path) -> None:
    image, path = fentry_kernel(), tmp_path / "vmlinux"
    image.sections[1].header = {"sh_name": start}
    path.write_bytes(image.build())
    assert open_image(path).elf.sections[2].name == ""


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    image, path = fentry_kernel(), tmp_path / "vmlinux"
    image.sections.append(Section(".odd\xff\n", b"1"))
    path.write_bytes(image.build().replace(".odd\xff".encode(), b".odd\xff\xfe"))
    names = [section.name for section in open_image(path).elf.sections]
    assert ".odd\\xff\\xfe\n" in names


def test_names_that_share_one_long_string_are_refused(tmp_path: Path) -> None:
    image = fentry_kernel()
    long = Section("." + "x" * (1 << 14), b"1")
    at = len(image.sections)
    image.sections += [long, *(Section(f".s{number}", b"1") for number in range(1100))]
    data = bytearray(image.build())
    skeleton = read_skeleton("vmlinux", np.frombuffer(data, np.uint8))
    entry = skeleton.section_headers + 64 * (at + 1)
    name = data[entry : entry + 4]
    for index in range(at + 1, at + 1101):
        start = skeleton.section_headers + 64 * (index + 1)
        data[start : start + 4] = name
    assert "names are too long" in _reason(bytes(data), tmp_path / "vmlinux")


def test_one_string_table_may_serve_sections_and_symbols(tmp_path: Path) -> None:
    """LLVM's tools write such files."""
    image = fentry_kernel()
    path = tmp_path / "vmlinux"
    image.sections += image._symbol_table([Section(""), *image.sections])
    image.symbols = []
    # .strtab, the fourth section, becomes that of the names; only what it says itself is read.
    image.header = {"e_shstrndx": 4}
    path.write_bytes(image.build())
    assert open_image(path).symbols.find("vfs_read") is not None


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, Path("/dev/null"), tmp_path / "missing"):
        with pytest.raises(InputError) as caught:
            open_image(path)
        assert caught.value.path == str(path)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(InputError, match="empty"):
        open_image(empty)


def test_addresses_and_offsets(tmp_path: Path) -> None:
    path = tmp_path / "vmlinux"
    path.write_bytes(fentry_kernel().build())
    elf = open_image(path).elf
    text, data = (elf.section(name) for name in (".text", ".init.data"))
    assert text is not None and data is not None
    at = [text.address, text.address + text.size - 1, text.address + text.size, data.address]
    addresses = np.array([*at, text.address - 1, 0, (1 << 64) - 1], np.uint64)
    offsets = [text.offset, text.offset + text.size - 1, -1, data.offset, -1, -1, -1]
    assert elf.offset_of(addresses).tolist() == offsets
    offsets[3] = -1
    assert elf.offset_of(addresses, executable=True).tolist() == offsets


def test_gather_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "image"
    data = pad_program().build()
    path.write_bytes(data)
    size = len(data)
    code, there = open_image(path).elf.gather(np.array([0, size - 8, size - 3, size, -1, -9]), 8)
    assert there.tolist() == [True, True, False, False, False, False]
    rows = [data[:8], data[-8:], data[-3:] + bytes(5), bytes(8), bytes(8), bytes(8)]
    assert [row.tobytes() for row in code] == rows


@pytest.mark.parametrize(("more", "words"), [(0, ""), (1, "its segments total 0x2")])
def test_segments_that_map_the_same_bytes(more: int, words: str, tmp_path: Path) -> None:
    """As many as hops need are read, and no more: nothing is allocated by what a header says."""
    image, path = fentry_kernel(), tmp_path / "image"
    contents = 1 << 20
    image.sections.append(Section(".many", bytes(contents)))
    count = MAX_MAPPED // contents + 4 * more
    image.segments += [
        Segment((".many",), header={"p_vaddr": (n + 1) << 32, "p_filesz": contents})
        for n in range(count)
    ]
    if words:
        assert words in _reason(image, path)
    else:
        path.write_bytes(image.build())
        assert len(open_image(path).elf.loads) == len(image.segments)
