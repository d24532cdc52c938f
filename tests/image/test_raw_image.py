# SPDX-License-Identifier: MIT
"""Images without headers of their own: made by hand, with and without relocations and names."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

from ftpatch.arch.raw_image import raw_images
from ftpatch.elf.headers import Section, Skeleton
from ftpatch.elf.relocations import Form, read_relocations
from ftpatch.errors import InputError
from ftpatch.image.containers.kernel_image import KernelImage
from ftpatch.image.link_base import find_link_base
from ftpatch.image.raw_image import HEADER, is_raw_image, kernel_version, read_raw_image
from ftpatch.image.raw_relocations import find_relocations
from tests.support.kallsyms_writer import Layout
from tests.support.raw_images import (
    ARM64,
    BASES,
    END,
    LOONGARCH64,
    MEMORY,
    RELATIVE,
    RELOCATIONS,
    RISCV64,
    TABLES,
    TEXT,
    V6,
    V7,
    Made,
)

every_form = pytest.mark.parametrize("form", [Form.NONE, Form.RELA, Form.RELR])
every_magic = pytest.mark.parametrize("magic", [ARM64, RISCV64, LOONGARCH64])


@every_magic
@every_form
@pytest.mark.parametrize("layout", [V6, V7, None], ids=str)
def test_where_an_image_is_linked(magic: bytes, form: int, layout: Layout | None) -> None:
    made = Made(magic, form, layout)
    assert find_link_base(made.array, MEMORY, raw_images()[magic][1].lowest) == BASES[magic]
    found = find_relocations(made.array, BASES[magic], MEMORY, RELATIVE[magic])
    assert found == made.tables


@every_magic
def test_entries_of_dropped_records_belong_to_the_table(magic: bytes) -> None:
    """Their type is NONE; they keep their place and addend. At an end of the table, they cannot be
    told from something else."""
    made = Made(magic, Form.RELA, V6)
    ((form, offset, size),) = made.tables
    data = made.array.copy()
    entries = data[offset : offset + size].view("<u8").reshape(-1, 3)
    assert (entries[:, 0] > 0).sum() > 9
    own = np.flatnonzero(entries[:, 0])[1:-1][::2]
    entries[own, 1] = 0
    assert find_relocations(data, BASES[magic], MEMORY, RELATIVE[magic]) == made.tables
    entries[0, 1] = 0
    found = find_relocations(data, BASES[magic], MEMORY, RELATIVE[magic])
    second = 24 * int(np.flatnonzero(entries[:, 1])[0])
    assert found == [(form, offset + second, size - second)]


@pytest.mark.parametrize(
    "base", [0xFFFF_8000_1008_0000, 0xFFFF_FFC0_0801_0000, 0xFFFF_FFE0_0000_0000]
)
def test_other_places(base: int) -> None:
    """Those of arm64 before v5.8, of 39-bit addresses, and of riscv64 before v5.13."""
    made = Made(form=Form.RELA, base=base)
    assert made.read().elf.skeleton.segments[0].address == base


def test_its_container_looks_at_the_whole_header() -> None:
    """Said twice, since one is imported for every file and the other for Images alone."""
    assert KernelImage.head == HEADER


@every_magic
@every_form
@pytest.mark.parametrize("layout", [V6, V7], ids=str)
def test_it_reads_as_an_elf_file(magic: bytes, form: int, layout: Layout) -> None:
    made = Made(magic, form, layout)
    read = made.read()
    elf, own = read.elf, read.own
    assert is_raw_image(made.array.data)
    assert elf.skeleton.machine == {ARM64: 183, RISCV64: 243, LOONGARCH64: 258}[magic]
    assert (elf.word, elf.skeleton.type) == (8, Skeleton.ET_DYN if form else Skeleton.ET_EXEC)
    (load,) = elf.skeleton.segments
    assert (load.offset, load.address, load.size) == (0, made.base, len(made.data))
    assert load.memory_size == max(MEMORY, len(made.data))
    assert [(s.name, s.address - made.base, s.size) for s in elf.sections[:2]] == [
        (".text", TEXT, 0x6000 - TEXT),
        (".init.text", 0x6000, 0x1000),
    ]
    assert [(s.offset, s.size) for s in elf.sections[2:]] == [t[1:] for t in made.tables]
    assert all(s.index == i and s.flags & Section.SHF_ALLOC for i, s in enumerate(elf.sections))
    places = elf.address_of(np.array(sorted(made.slots), np.int64))
    relocations = read_relocations(elf)
    if form:
        assert (relocations.at(places, (RELATIVE[magic],)) >= 0).all()
    assert own is not None
    assert own.address.tolist() == [row[0] for row in made.symbols]
    inside = np.array([made.base + TEXT, made.base + 0x7000], np.uint64)
    assert elf.offset_of(inside, executable=True).tolist() == [TEXT, -1]


def test_without_names_all_is_text() -> None:
    read = Made(layout=None).read()
    assert read.own is None
    assert read.elf.sections == ()
    assert read.elf.text.tolist() == [[BASES[ARM64], END]]


def test_behind_a_pe_file_s_parts_is_a_signature() -> None:
    made = Made()
    struct.pack_into("<I", made.data, 0x3C, 0x40)
    struct.pack_into("<4sHH12xHH", made.data, 0x40, b"PE\0\0", 0xAA64, 2, 160, 0)
    for row, (start, stop) in enumerate([(0x1000, 0x8000), (0x8000, END)]):
        at = 0x40 + 24 + 160 + 40 * row
        struct.pack_into("<8sIIII", made.data, at, b".text", 0, start, stop - start, start)
    made.data += random.Random(3).randbytes(1472)
    (load,) = made.read().elf.skeleton.segments
    assert (load.size, load.memory_size) == (END, MEMORY)
    struct.pack_into("<I", made.data, 0x3C, 0xFFFF_FFF0)
    assert made.read().elf.skeleton.segments[0].size == END + 1472


def test_the_version() -> None:
    assert kernel_version(Made().array) == "6.12.9-test"
    assert (
        kernel_version(np.frombuffer(b"Linux version %s\0Linux version 6\x1b[0m ", np.uint8)) == ""
    )


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Made(flags=11), "a big-endian Image is not supported"),
        (Made(RISCV64, offset=4 << 20), "an Image of a 32-bit kernel is not supported"),
        (Made(size=1 << 40), "an Image of 0x10000000000 bytes in memory is too large for a kernel"),
        (
            Made(magic=ARM64, base=0x40_0000),
            "cannot find the link address of this Image",
        ),
    ],
    ids=["big-endian", "32-bit", "memory", "user"],
)
def test_what_is_refused(made: Made, reason: str) -> None:
    with pytest.raises(InputError) as error:
        made.read()
    assert error.value.reason == reason


@pytest.mark.parametrize("size", [0, 63, 64, 100, 0x1000, 0x9000])
def test_cut_short(size: int) -> None:
    data = Made().array[:size]
    with pytest.raises(InputError) as error:
        read_raw_image(Path("Image"), data)
    assert "\n" not in str(error.value)


@every_form
def test_anything_behind_the_header(form: int) -> None:
    """Noise with pointers in it, and damaged tables: whatever is found lies in the file."""
    for seed in range(40):
        noise, made = random.Random(seed), Made(form=form, layout=V7)
        for _ in range(300):
            at = noise.choice([TABLES, RELOCATIONS]) + noise.randrange(0x1000)
            made.data[at] = noise.randrange(256)
        try:
            read = made.read()
        except InputError:
            continue
        assert all(s.offset + s.size <= len(made.data) for s in read.elf.sections)
