"""Modules that are not what a compiler leaves: told in one line, or refused site by site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .command import ftpatch
from .elf_writer import Section, Symbol
from .loose_forms import CALLING, FORMS, PADS, Form
from .loose_images import NAMES, STEP, Loose, module, put, section_of
from .loose_reader import read_loose

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


def _other_callee(form: Form, image: Loose) -> None:
    image.rows[".text"][2] = (STEP + form.field, form.call, "printk", form.addend)


def _other_addend(form: Form, image: Loose) -> None:
    image.rows[".text"][2] = (STEP + form.field, form.call, form.mcount, form.addend + 8)
    text = section_of(image, ".text")
    if not form.rela:
        text.data = text.data[: STEP + 1] + b"\x04\0\0\0" + text.data[STEP + 5 :]


def _no_relocation(form: Form, image: Loose) -> None:
    del image.rows[".text"][2]


def _unknown_type(form: Form, image: Loose) -> None:
    image.rows[".text"][2] = (STEP + form.field, 77, form.mcount, form.addend)


def _no_such_symbol(form: Form, image: Loose) -> None:
    image.rows[".text"][2] = (STEP + form.field, form.call, "999", form.addend)


def _field_filled(form: Form, image: Loose) -> None:
    """The loader of x86_64 writes to zeros only, that of i386 adds to what is there."""
    text = section_of(image, ".text")
    text.data = text.data[: STEP + 1] + b"\1\2\3\4" + text.data[STEP + 5 :]


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize(
    "damage",
    [
        _other_callee,
        _other_addend,
        _no_relocation,
        _unknown_type,
        _no_such_symbol,
        _field_filled,
    ],
)
def test_calls_that_are_not_the_compilers(name: str, damage: Break, tmp_path: Path) -> None:
    """The second function's site: refused, and with it everything."""
    _one_refused(name, damage, tmp_path)


def _relocation_over(form: Form, image: Loose) -> None:
    place = STEP + form.before + 2
    image.rows[".text"].append((place, form.call, "printk", form.addend))


def _word_over(form: Form, image: Loose) -> None:
    """It begins before the site and ends in it."""
    place = STEP + form.before - form.word + 1
    image.rows[".text"].append((place, form.absolute, "printk", 0))


def _damaged(form: Form, image: Loose) -> None:
    text, at = section_of(image, ".text"), STEP + form.before
    text.data = text.data[:at] + b"\x0b\x0b\x0b\x0b" + text.data[at + 4 :]


def _half_a_site(form: Form, image: Loose) -> None:
    """Its last record points at the last two bytes of a section."""
    where, at = ".more", 10
    text = Section(where, b"\xcc" * at + form.site[:2], flags=6)
    image.sections.append(text)
    image.symbols.insert(0, Symbol("", 0, type=3, bind=0, section=where))
    place = form.word
    image.rows[form.table][1] = (place, form.absolute, where, at if form.rela else 0)
    if not form.rela:
        table = section_of(image, form.table)
        table.data = table.data[:place] + image.table([at]) + table.data[2 * place :]


@every_form
@pytest.mark.parametrize("damage", [_relocation_over, _word_over, _damaged, _half_a_site])
def test_what_is_at_a_site(name: str, damage: Break, tmp_path: Path) -> None:
    _one_refused(name, damage, tmp_path)


def _one_refused(name: str, damage: Break, tmp_path: Path) -> None:
    form = FORMS[name]
    image = module(form)
    damage(form, image)
    path = put(image, tmp_path)
    data = path.read_bytes()
    assert ftpatch("status", "--json", path).only["sites"] == 6
    if damage is not _field_filled:
        assert ftpatch("check", path).code == 1
    for command in COMMANDS[: 2 if damage is _other_callee else 3]:
        if form.mcount or command[0] == "enable":
            result = ftpatch(*command, "--json", path)
            assert result.code == 1 and not result.err, (command, result)
            (failed,) = result.only["failed"]
            assert failed["reason"].startswith(("EINVAL", "EFAULT"))
            assert result.only["changed"] == 0
    others = ["-f", "open_it", "-f", "write_it", "-f", "set_up"]
    assert ftpatch("enable", "--to", "printk", "--in-place", path, *others).code == 0
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


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


@pytest.mark.parametrize("name", PADS)
def test_no_relocation_of_a_call_is_needed_at_pads(name: str, tmp_path: Path) -> None:
    """One that a pad has is one too many."""
    form = FORMS[name]
    image = module(form)
    place = STEP + form.before + form.place
    image.rows[".text"].append((place, form.call, "printk", 0))
    result = ftpatch("enable", "--to", "printk", "--json", put(image, tmp_path))
    assert result.code == 1 and len(result.only["failed"]) == 1
