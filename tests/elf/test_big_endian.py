# SPDX-License-Identifier: MIT
"""The same file in both byte orders is read as the same; pyelftools agrees with either."""

from __future__ import annotations

import io
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.elf.elf_file import Elf
from ftpatch.elf.relocations import read_relocations
from ftpatch.elf.sections import Headers, Tail
from ftpatch.elf.segments import ProgramHeaders
from ftpatch.elf.symbols import read_symbols
from tests.support.elf_writer import SHF_ALLOC, SHT_RELA, SHT_RELR, Image, Section, Segment, Symbol
from tests.support.tables import rela, relr

BASE = 0x10000


def _image(bits: int, *, big: bool) -> Image:
    """Of a machine that does not matter here."""
    image = Image(22 if bits == 64 else 20, bits, big=big)
    image.sections = [
        Section(".text", bytes(range(64)), BASE),
        Section(".rela.dyn", b"", BASE + 0x1000, SHT_RELA, SHF_ALLOC),
        Section(".relr.dyn", b"", BASE + 0x2000, SHT_RELR, SHF_ALLOC),
    ]
    image.segments = [Segment((".text", ".rela.dyn", ".relr.dyn"))]
    image.symbols = [Symbol("one", BASE + 4, 8), Symbol("two", BASE + 16, 12)]
    step = bits // 8
    image.sections[1].entsize, image.sections[2].entsize = 3 * step, step
    image.sections[1].data = rela(image, [(BASE + step * i, 12, i, -i) for i in range(9)])
    image.sections[2].data = relr(image, [BASE + 0x100 + step * i for i in (0, 1, 5, 9, 70, 200)])
    return image


def _read(bits: int, *, big: bool) -> Elf:
    return Elf.read(Path("image"), np.frombuffer(_image(bits, big=big).build(), np.uint8))


@pytest.mark.parametrize("bits", [32, 64])
def test_both_are_the_same(bits: int) -> None:
    little, big = (_read(bits, big=big) for big in (False, True))
    assert little.order != big.order and not (little.data == big.data).all()
    assert astuple(little.skeleton)[:-1] == astuple(big.skeleton)[:-1]
    for column in ("value", "size", "type", "bind", "section", "name"):
        first, second = (getattr(read_symbols(elf), column).tolist() for elf in (little, big))
        assert first == second and len(first) == 3, column
    for column in ("place", "type", "symbol", "addend", "form", "entry", "bit"):
        first, second = (getattr(read_relocations(elf), column).tolist() for elf in (little, big))
        assert first == second and len(first) == 9 + 6, column
    assert ProgramHeaders(little).rows.tolist() == ProgramHeaders(big).rows.tolist()


@pytest.mark.parametrize("bits", [32, 64])
def test_pyelftools_reads_the_same(bits: int) -> None:
    elf = _read(bits, big=True)
    other = ELFFile(io.BytesIO(elf.data.tobytes()))
    assert not other.little_endian
    assert [(s.name, s.address, s.size) for s in elf.sections] == [
        (s.name, s["sh_addr"], s["sh_size"]) for s in other.iter_sections()
    ]
    own = read_relocations(elf)
    theirs = [
        (r["r_offset"], r["r_info_type"], r["r_info_sym"], r["r_addend"])
        for r in other.get_section_by_name(".rela.dyn").iter_relocations()
    ]
    columns = (own.place, own.type, own.symbol, own.addend)
    assert list(zip(*(column.tolist() for column in columns), strict=True))[: len(theirs)] == theirs
    relative = [r["r_offset"] for r in other.get_section_by_name(".relr.dyn").iter_relocations()]
    assert sorted(own.place[len(theirs) :].tolist()) == relative


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("bits", [32, 64])
def test_what_is_appended_is_in_its_order(bits: int, big: bool) -> None:
    elf = _read(bits, big=big)
    tail = Tail(len(elf.data))
    headers = Headers(elf, tail)
    (name,) = headers.names(".added")
    headers.append(name, 1, b"hello")
    data, changes = elf.data.copy(), headers.changes()
    changes.put(data)
    other = ELFFile(io.BytesIO(data.tobytes() + bytes(tail.data)))
    assert other.get_section_by_name(".added").data() == b"hello"


@pytest.mark.parametrize("bits", [32, 64])
def test_a_program_header_more(bits: int) -> None:
    image = _image(bits, big=True)
    programs = ProgramHeaders(_read(bits, big=True))
    programs.add(1, offset=1, vaddr=2, paddr=3, filesz=4, memsz=5, flags=6, align=7)
    wanted = (1, 6, 1, 2, 3, 4, 5, 7) if bits == 64 else (1, 1, 2, 3, 4, 5, 6, 7)
    packed = image.pack("IIWWWWWW", *wanted)
    assert programs.table(0, 0).endswith(packed)
