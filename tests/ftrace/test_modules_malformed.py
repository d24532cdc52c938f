# SPDX-License-Identifier: MIT
"""Modules whose headers and tables lie, or are only odd: told in one line, or no matter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import Section, Symbol
from tests.support.loose_forms import FORMS, Form
from tests.support.loose_images import NAMES, STEP, Loose, module, put, section_of
from tests.support.loose_reader import read_loose

READING = ("status", "list", "check", "undo", "diff")
COMMANDS = (["disable"], ["enable", "--to", "new_one"], ["enable", "--to", "printk"])
Break = Callable[[Form, Loose], None]
HUGE = (1 << 64) - 1
every_form = pytest.mark.parametrize("name", FORMS)


def _entries(form: Form) -> str:
    return (".rela" if form.rela else ".rel") + form.table


def _odd_table(form: Form, image: Loose) -> None:
    section_of(image, form.table).data += b"\0"


def _no_bits(form: Form, image: Loose) -> None:
    section_of(image, form.table).type = 8


def _relocation_outside(form: Form, image: Loose) -> None:
    image.rows[".text"].append((5000, form.call, "printk", form.addend))


def _slot_outside(form: Form, image: Loose) -> None:
    image.rows[form.table].append((len(NAMES) * form.word, form.absolute, ".text", 0))


def _no_such_section(form: Form, image: Loose) -> None:
    image.edits[_entries(form)] = {"sh_info": 999}


def _no_such_strings(form: Form, image: Loose) -> None:
    image.edits[".symtab"] = {"sh_link": 999}


def _symbols_outside(form: Form, image: Loose) -> None:
    image.edits[".symtab"] = {"sh_size": 1 << 20}


def _strings_outside(form: Form, image: Loose) -> None:
    image.edits[".strtab"] = {"sh_offset": 1 << 20}


def _text_outside(form: Form, image: Loose) -> None:
    image.edits[".text"] = {"sh_size": 1 << 20}


def _table_twice_the_file(form: Form, image: Loose) -> None:
    for number in range(60):
        more = Section(f".more{number}", image.table([1] * 3))
        image.sections.append(more)
        image.rows[more.name] = [(0, form.absolute, "printk", 0)]
        image.edits[f"{_entries(form).removesuffix(form.table)}{more.name}"] = {
            "sh_offset": 0,
            "sh_size": 600,
        }


@every_form
@pytest.mark.parametrize(
    "damage",
    [
        _odd_table,
        _no_bits,
        _relocation_outside,
        _slot_outside,
        _no_such_section,
        _no_such_strings,
        _symbols_outside,
        _strings_outside,
        _text_outside,
        _table_twice_the_file,
    ],
)
def test_what_cannot_be_read(name: str, damage: Break, tmp_path: Path) -> None:
    image = module(FORMS[name])
    damage(FORMS[name], image)
    path = put(image, tmp_path)
    data = path.read_bytes()
    for command in ([verb] for verb in READING if verb != "undo"):
        result = ftpatch(*command, path)
        assert result.code == 2 and result.err.count("\n") == 1, result
        assert str(path) in result.err and "internal" not in result.err
    for command in COMMANDS:
        assert ftpatch(*command, path).code == 2
    assert path.read_bytes() == data and [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


def _no_alignment(form: Form, image: Loose) -> None:
    image.edits[".text"] = {"sh_addralign": 0}


def _an_address(form: Form, image: Loose) -> None:
    """Loaders give it another."""
    image.edits[".text"] = {"sh_addr": 0x1000}


def _no_entry_size(form: Form, image: Loose) -> None:
    image.edits |= {".symtab": {"sh_entsize": 0}, _entries(form): {"sh_entsize": 0}}


def _odd_relocations(form: Form, image: Loose) -> None:
    entries = ".rela.text" if form.rela else ".rel.text"
    size = len(image.rows[".text"]) * form.word * (3 if form.rela else 2)
    image.edits[entries] = {"sh_size": size + 5}


def _large_bss(form: Form, image: Loose) -> None:
    size = 1 << (40 if form.bits == 64 else 30)
    image.sections.append(Section(".bss", type=8, flags=3, size=size))
    image.symbols.append(Symbol("far", size - 8, 8, 1, section=".bss"))


def _idle_relocations(form: Form, image: Loose) -> None:
    """Of type NONE, in the midst of a site: nothing is written there."""
    image.rows[".text"].append((STEP + form.before, 0, "", 0))


def _code_behind_others(form: Form, image: Loose) -> None:
    image.sections.append(image.sections.pop(0))


@every_form
@pytest.mark.parametrize(
    "oddity",
    [
        _no_alignment,
        _an_address,
        _no_entry_size,
        _odd_relocations,
        _large_bss,
        _idle_relocations,
        _code_behind_others,
    ],
)
def test_what_does_no_harm(name: str, oddity: Break, tmp_path: Path) -> None:
    image = module(FORMS[name])
    oddity(FORMS[name], image)
    path = put(image, tmp_path)
    data = path.read_bytes()
    assert ftpatch("status", "--json", path).only["sites"] == 6
    for command in COMMANDS:
        assert ftpatch(*command, "--in-place", path).code == 0
        assert ftpatch("status", "--json", path).only["sites"] == 6
        if oddity is not _no_entry_size:  # without it pyelftools cannot read it either
            assert len(read_loose(path).symbols) >= len(image.symbols)
    assert ftpatch("undo", "--all", path).code == 0
    assert path.read_bytes() == data


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [HUGE, 1 << 63, 1 << 62])
def test_sections_beyond_all_addresses(count: int, size: int, tmp_path: Path) -> None:
    """They have no bytes, and need not fit beside each other: a reason, or nothing special."""
    image = module(FORMS["x86_64"])
    for number in range(count):
        image.sections.append(Section(f".bss{number}", type=8, flags=3, size=size))
        image.symbols.append(Symbol(f"b{number}", size, 8, 1, section=f".bss{number}"))
    path = put(image, tmp_path)
    for command in (["status"], ["check"], ["list"], ["disable", "--force"]):
        result = ftpatch(*command, path)
        assert result.code in (0, 2) and "internal" not in result.err, result
    assert path.read_bytes() == image.build()
