# SPDX-License-Identifier: MIT
"""``check`` of kernel modules: what is asked of them, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.broken import check, found
from tests.support.command import ftpatch
from tests.support.elf_writer import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_RELA,
    Image,
    Section,
    Symbol,
)
from tests.support.tables import rela

CALL = bytes.fromhex("e800000000c3")  # call __fentry__, to be relocated; ret
PLT32, ABS64 = 4, 1  # R_X86_64_PLT32, R_X86_64_64
INFO_LINK = 0x40  # SHF_INFO_LINK
SIZE = 16
"""Bytes of a function."""


def module(where: str = ".init.text", *, sites: bool = True) -> Image:
    """An x86_64 module with a function in .text and one in a section of this name; without
    ``sites`` none is traced, and there is no table."""
    code = CALL.ljust(SIZE, b"\xcc") if sites else b"\xc3".ljust(SIZE, b"\xcc")
    text, data = SHF_ALLOC | SHF_EXECINSTR, SHF_ALLOC | SHF_WRITE
    image = Image(type=1)
    image.symbols = [
        Symbol("first", 0, SIZE, section=".text"),
        Symbol("second", 0, SIZE, section=where),
        Symbol("__fentry__", 0, type=0, section=None),
    ]
    image.sections = [
        Section(".text", code, flags=text),
        Section(where, code, flags=text),
        Section(".modinfo", b"license=GPL\0"),
        Section(".gnu.linkonce.this_module", bytes(64), flags=data),
    ]
    if not sites:
        return image
    image.sections.append(Section("__mcount_loc", bytes(16), flags=data, align=8))
    link = len(image.sections) + 4  # the symbol table, behind three tables of relocations
    for target, rows in (
        (1, [(1, PLT32, 3, -4)]),
        (2, [(1, PLT32, 3, -4)]),
        (5, [(0, ABS64, 1, 0), (8, ABS64, 2, 0)]),
    ):
        name = f".rela{image.sections[target - 1].name}"
        table = Section(name, rela(image, rows), 0, SHT_RELA, INFO_LINK, 8, link, target, 24)
        image.sections.append(table)
    return image


def test_a_module_is_clean(tmp_path: Path) -> None:
    assert found(module(), tmp_path) == []
    assert ftpatch("status", "--json", tmp_path / "image").only["sites"] == 2


def test_a_module_without_a_table_is_clean(tmp_path: Path) -> None:
    """All that it has may be notrace."""
    assert found(module(sites=False), tmp_path) == []
    assert ftpatch("check", tmp_path / "image").code == 0


@pytest.mark.parametrize("where", [".ref.text", ".sched.text", ".text.unlikely"])
def test_sections_of_a_module_that_are_traced(where: str, tmp_path: Path) -> None:
    assert found(module(where), tmp_path) == []


@pytest.mark.parametrize(
    "where", [".noinstr.text", ".exit.text", ".static_call.text", ".altinstr_replacement"]
)
def test_sections_of_a_module_that_are_not(where: str, tmp_path: Path) -> None:
    (row,) = found(module(where), tmp_path)
    assert (row[0], row[2]) == ("notrace-place", "second+0x0")


def test_a_record_in_the_middle_of_a_function(tmp_path: Path) -> None:
    """Such a call has its relocation as well: only where it stands is wrong."""
    image = module()
    image.sections[0].data = b"\x90" * 8 + CALL + b"\xcc\xcc"
    image.sections[5].data = rela(image, [(9, PLT32, 3, -4)])
    image.sections[7].data = rela(image, [(0, ABS64, 1, 8), (8, ABS64, 2, 0)])
    (row,) = found(image, tmp_path)
    assert (row[0], row[2]) == ("record-in-function", "first+0x8")


def test_order_is_no_rule_for_a_module(tmp_path: Path) -> None:
    """The kernel sorts the table of each module that it loads."""
    image = module()
    image.sections[7].data = rela(image, [(0, ABS64, 2, 0), (8, ABS64, 1, 0)])
    assert found(image, tmp_path) == []


def test_another_relocation_over_a_site(tmp_path: Path) -> None:
    image = module()
    image.sections[5].data = rela(image, [(1, PLT32, 3, -4), (3, ABS64, 1, 0)])
    assert ("site-relocated", "first+0x0") in [(r[0], r[2]) for r in found(image, tmp_path)]


@pytest.mark.parametrize(("far", "told"), [(0, False), (1 << 30, True)])
def test_a_record_behind_its_module(far: int, told: bool, tmp_path: Path) -> None:
    """Nobody knows what is mapped there once it is loaded."""
    image = module()
    image.sections[7].data = rela(image, [(0, ABS64, 1, 0), (8, ABS64, 2, far)])
    said = check(image, tmp_path).out
    assert ("if other memory is mapped there" in said) is told
    assert ("ftrace faulted on modifying" in said) is told
