# SPDX-License-Identifier: MIT
"""What an update of a module must not change, where the file is made so that it would."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ftpatch
from tests.support.elf_writer import SHF_ALLOC, SHT_RELA, Section, Symbol
from tests.support.loose_forms import FORMS, PADS, Form
from tests.support.loose_images import STEP, Loose, module, put, section_of

Break = Callable[[Form, Loose], None]
every_form = pytest.mark.parametrize("name", FORMS)
SHF_RELA_LIVEPATCH = 0x0010_0000
SHN_LIVEPATCH = 0xFF20


def _foreign_relocation(form: Form, image: Loose) -> None:
    """Of the symbol that is to be laid behind the others: it would be bound to the tracer."""
    row = str(len(image.symbols) + 1)
    image.sections.append(Section(".data", bytes(64), align=8))
    image.rows[".data"] = [(8, form.absolute, row, 0)]


def _foreign_record(form: Form, image: Loose) -> None:
    at, kind, _, addend = image.rows[form.table][-1]
    image.rows[form.table][-1] = (at, kind, str(len(image.symbols) + 1), addend)


def _cut_symbols(_form: Form, image: Loose) -> None:
    """Its size ends in the middle of a symbol."""
    size = (24 if image.bits == 64 else 16) * (len(image.symbols) + 1)
    image.edits[".symtab"] = {"sh_size": size + 8}


def _strings_elsewhere(_form: Form, image: Loose) -> None:
    image.edits[".symtab"] = {"sh_link": 1}


def _no_strings(_form: Form, image: Loose) -> None:
    image.edits[".strtab"] = {"sh_size": 0}


def _strings_without_end(_form: Form, image: Loose) -> None:
    size = 1 + sum(len(symbol.name) + 1 for symbol in image.symbols if symbol.name)
    image.edits[".strtab"] = {"sh_size": size - 1}


@pytest.mark.parametrize(
    "damage",
    [
        _foreign_relocation,
        _foreign_record,
        _cut_symbols,
        _strings_elsewhere,
        _no_strings,
        _strings_without_end,
    ],
)
@every_form
def test_nothing_else_may_change(name: str, damage: Break, tmp_path: Path) -> None:
    form = FORMS[name]
    image = module(form)
    damage(form, image)
    path = put(image, tmp_path)
    data = path.read_bytes()
    result = ftpatch("enable", "--to", "new_one", "--in-place", path, "-f", "open_it")
    assert result.code in (1, 2) and not result.out and "internal" not in result.err, result
    assert path.read_bytes() == data and [p.name for p in tmp_path.iterdir()] == [path.name]


@every_form
def test_symbols_of_a_livepatch(name: str, tmp_path: Path) -> None:
    """What a livepatch resolves later has no address here, and is not called."""
    form = FORMS[name]
    image = module(form)
    image.symbols.append(Symbol(".klp.sym.vmlinux.printk,0", 0, type=0, section=".modinfo"))
    data = bytearray(image.build())
    elf = ELFFile(io.BytesIO(data))
    table = elf.get_section_by_name(".symtab")
    row = table["sh_offset"] + (len(image.symbols)) * table["sh_entsize"]
    at = row + (6 if form.word == 8 else 14)
    data[at : at + 2] = SHN_LIVEPATCH.to_bytes(2, "little")
    path = tmp_path / "demo.ko"
    path.write_bytes(data)
    result = ftpatch("enable", "--to", ".klp.sym.vmlinux.printk,0", "--in-place", path)
    assert result.code == 2 and "is no" in result.err
    assert ftpatch("enable", "--to", "new_one", "--in-place", path).code == 0
    after = ELFFile(io.BytesIO(path.read_bytes())).get_section_by_name(".symtab")
    assert after.get_symbol(len(image.symbols))["st_shndx"] == SHN_LIVEPATCH
    assert after.get_symbol(len(image.symbols) + 1).name == "new_one"
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == data


@pytest.mark.parametrize("name", [n for n in PADS if FORMS[n].rela])
def test_relocations_of_a_livepatch_get_no_calls(name: str, tmp_path: Path) -> None:
    """A kernel applies .klp.rela sections when the object that is patched is loaded."""
    form = FORMS[name]
    image = module(form)
    text = 1 + [s.name for s in image.sections].index(".text")
    klp = Section(
        ".klp.rela.vmlinux..text",
        type=SHT_RELA,
        flags=SHF_ALLOC | SHF_RELA_LIVEPATCH,
        link=len(image.sections) + len(image.rows) + 2,
        info=text,
        entsize=24,
    )
    image.sections.insert(0, klp)
    klp.info += 1
    path = put(image, tmp_path)
    assert ftpatch("enable", "--to", "new_one", "--in-place", path, "-f", "open_it").code == 0
    elf = ELFFile(io.BytesIO(path.read_bytes()))
    assert elf.get_section_by_name(klp.name)["sh_size"] == 0
    assert ftpatch("list", "--json", path, "-f", "open_it").only["state"] == "call"


def test_an_eight_byte_relocation_reaches_into_a_site(tmp_path: Path) -> None:
    image = module(FORMS["x86_64"])
    image.rows[".text"].append((STEP - 6, 24, "printk", 0))  # R_X86_64_PC64
    text = section_of(image, ".text")
    text.data = text.data[: STEP - 6] + bytes(6) + text.data[STEP:]
    result = ftpatch("disable", put(image, tmp_path), "-f", "read_it")
    assert result.code == 1 and "ftrace bug" in result.err + result.out
