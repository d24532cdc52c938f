# SPDX-License-Identifier: MIT
"""Sites of modules that are not what a compiler leaves: refused one by one, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import Section, Symbol
from tests.support.loose_forms import CALLING, FORMS, PADS, Form
from tests.support.loose_images import STEP, Loose, module, put, section_of

COMMANDS = (["disable"], ["enable", "--to", "new_one"], ["enable", "--to", "printk"])
Break = Callable[[Form, Loose], None]
every_form = pytest.mark.parametrize("name", FORMS)


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


@pytest.mark.parametrize("name", PADS)
def test_no_relocation_of_a_call_is_needed_at_pads(name: str, tmp_path: Path) -> None:
    """One that a pad has is one too many."""
    form = FORMS[name]
    image = module(form)
    place = STEP + form.before + form.place
    image.rows[".text"].append((place, form.call, "printk", 0))
    result = ftpatch("enable", "--to", "printk", "--json", put(image, tmp_path))
    assert result.code == 1 and len(result.only["failed"]) == 1
