# SPDX-License-Identifier: MIT
"""Symbols and relocations against pyelftools; the order of names against kallsyms' rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection, RelrRelocationSection
from hypothesis import given
from hypothesis import strategies as st

from ftpatch.elf.relocations import Form
from ftpatch.errors import InputError
from ftpatch.image import Image as Opened
from ftpatch.image import open_image
from tests.support.elf_writer import (
    SHF_ALLOC,
    SHT_REL,
    SHT_RELA,
    SHT_RELR,
    Image,
    Section,
    Segment,
    Symbol,
)
from tests.support.images import fentry_kernel, section
from tests.support.samples import SAMPLES, Sample
from tests.support.tables import rel, rela, relr

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)


@every_sample
def test_symbols_are_pyelftools_s(sample: Sample) -> None:
    symbols = open_image(sample.path).symbols
    with sample.path.open("rb") as file:
        elf = ELFFile(file)
        table: Any = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
        if table is None:
            pytest.skip("the sample has no section headers; see the next test")
        wanted = [(s.name, s["st_value"], s["st_size"]) for s in table.iter_symbols()]
    rows = np.arange(len(symbols))
    found = zip(symbols.names(rows), symbols.value.tolist(), symbols.size.tolist(), strict=True)
    assert list(found) == wanted
    for name, value, _ in wanted:
        if name and symbols.find(name) is not None:
            assert value in symbols.value[symbols.rows_named(name)] or value == 0


def test_without_section_headers_symbols_come_from_the_dynamic_table() -> None:
    without, headers = (
        open_image(s.path).dynamic_symbols
        for s in SAMPLES
        if s.name in ("pad-noheaders", "pad-stripped")
    )
    assert without.names(np.arange(len(without))) == headers.names(np.arange(len(headers)))
    assert len(without) > 3


@every_sample
def test_relocations_are_pyelftools_s(sample: Sample) -> None:
    found = open_image(sample.path).relocations
    wanted = []
    with sample.path.open("rb") as file:
        elf = ELFFile(file)
        if elf.num_sections() == 0:
            pytest.skip("the sample has no section headers")
        for part in elf.iter_sections():
            if isinstance(part, RelrRelocationSection):
                wanted += [(Form.RELR, r["r_offset"], 0, 0, 0) for r in part.iter_relocations()]
            elif isinstance(part, RelocationSection) and part["sh_flags"] & SHF_ALLOC:
                form = Form.RELA if part.is_RELA() else Form.REL
                for r in part.iter_relocations():
                    addend = r["r_addend"] if part.is_RELA() else 0
                    symbol = r["r_info_sym"]
                    wanted.append((form, r["r_offset"], r["r_info_type"], symbol, addend))
    columns = (found.form, found.place, found.type, found.symbol, found.addend)
    assert sorted(zip(*(c.tolist() for c in columns), strict=True)) == sorted(wanted)


@given(st.sets(st.integers(0, 400), max_size=80))
def test_any_relr_table_comes_back(words: set[int]) -> None:
    for bits in (32, 64):
        image = Image(bits=bits)
        size = bits // 8
        places = sorted(0x1000 + size * word for word in words)
        table = relr(image, places)
        data = Section(".data", bytes(size * 401), 0x1000)
        image.sections = [data, Section(".relr.dyn", table, 0x8000, SHT_RELR)]
        image.segments = [Segment((".data",)), Segment((".relr.dyn",))]
        found = _opened(image).relocations
        assert sorted(found.place.tolist()) == places
        # Each row knows its bitmap: bit b of the entry stands for the place.
        raw = np.frombuffer(image.build(), np.uint8)
        for place, entry, bit in zip(found.place, found.entry, found.bit, strict=True):
            word = int.from_bytes(raw[entry : entry + size].tobytes(), "little")
            assert word >> int(bit) & 1 if bit else word == place


def _opened(image: Image) -> Opened:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "image")
        path.write_bytes(image.build())
        return open_image(path)  # mapped: the name may go


def test_a_bitmap_without_an_address_says_nothing() -> None:
    image = Image(sections=[Section(".relr.dyn", Image().table([3, 0x1000, 5]), 0x8000, SHT_RELR)])
    assert _opened(image).relocations.place.tolist() == [0x1000, 0x1010]


@pytest.mark.parametrize("bits", [32, 64])
def test_rel_and_rela_of_both_classes(bits: int) -> None:
    image = Image(bits=bits, machine=62 if bits == 64 else 3)
    image.sections = [
        Section(".rel.dyn", rel(image, [(0x1000, 8, 0), (0x1008, 6, 3)]), 0x2000, SHT_REL),
        Section(".rela.dyn", rela(image, [(0x1010, 8, 0, 0x77), (4, 7, 2, -4)]), 0x3000, SHT_RELA),
        Section(".rela.text", rela(image, [(0, 2, 1, 0)]), 0, SHT_RELA, flags=0),
    ]
    found = _opened(image).relocations
    rows = zip(found.place, found.type, found.symbol, found.addend, strict=True)
    mask = (1 << bits) - 1
    assert [(int(p), int(t), int(s), int(a) & mask) for p, t, s, a in rows] == [
        (0x1000, 8, 0, 0),
        (0x1008, 6, 3, 0),
        (0x1010, 8, 0, 0x77),
        (4, 7, 2, -4 & mask),
    ]
    places = np.array([0x1000, 0x1008, 0x1010, 0x1018], np.uint64)
    assert found.at(places, (8,)).tolist() == [0, -1, 2, -1]


def test_names_that_share_their_tails_are_found() -> None:
    names = ["do_vfs_read", "vfs_read", "read", "unrelated"]
    image = fentry_kernel()
    image.shared_tails = True
    image.symbols += [Symbol(name, 0x1000 + i) for i, name in enumerate(names)]
    symbols = _opened(image).symbols
    assert all(0x1000 + i in symbols.value[symbols.rows_named(n)] for i, n in enumerate(names))
    assert len(symbols.rows_named("ead")) == 0 and symbols.find("vfs_rea") is None


def test_undefined_symbols_are_not_found() -> None:
    image = fentry_kernel()
    image.symbols.append(Symbol("printk", 0, section=None))
    assert _opened(image).symbols.find("printk") is None


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["__x64_sys_read", "__se_sys_read"], "__se_sys_read"),
        (["__foo", "_foo", "foo"], "foo"),
        (["__start_table", "___foo"], "___foo"),
        (["$x", "__pfx_foo", "__cfi_foo", "zzz"], "zzz"),
        ([".Llabel", "name"], "name"),
        (["b", "a"], "a"),
        (["weak", "zz"], "zz"),
    ],
)
def test_the_first_name_is_kallsyms_s(names: list[str], wanted: str) -> None:
    image = fentry_kernel()
    at = section(image, ".text").address + 0x10000
    image.symbols += [Symbol(name, at, bind=2 if name == "weak" else 1) for name in names]
    found = _opened(image).kallsyms.lookup(np.array([at + 4, 0], np.uint64))
    assert found[0][:2] == (wanted, 4) and found[1] == ("", 0, 0)


def test_sizes_are_distances_to_the_next_symbol() -> None:
    places = np.array([0xFFFF_FFFF_8100_0040, 0xFFFF_FFFF_8100_0085], np.uint64)
    found = _opened(fentry_kernel()).kallsyms.lookup(places)
    assert found == [("vfs_read", 0, 64), ("vfs_write", 5, 64)]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"sh_link": 99}, "no section 99"),
        ({"sh_size": 1 << 20}, "needs"),
    ],
)
def test_a_broken_symbol_table_is_refused(header: dict[str, int], words: str) -> None:
    image = fentry_kernel()
    image.sections += image._symbol_table([Section(""), *image.sections])
    image.symbols = []
    section(image, ".symtab").header = header
    with pytest.raises(InputError, match=words):
        _opened(image)


def test_names_that_are_no_text_are_escaped() -> None:
    image = fentry_kernel()
    at = 0xFFFF_FFFF_8200_0000
    image.symbols += [Symbol(b"caf\xe9\x1b[31m", at), Symbol("naïve", at + 8)]
    found = _opened(image).kallsyms.lookup(np.array([at, at + 8], np.uint64))
    assert [name for name, _, _ in found] == ["caf\\xe9\x1b[31m", "naïve"]
