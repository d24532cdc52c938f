# SPDX-License-Identifier: MIT
"""Tables of modules whose records are not what they should be, and sections that overlap."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import Section, Symbol
from tests.support.loose_forms import CALLING, FORMS, Form
from tests.support.loose_images import PLACES, STEP, Loose, module, put, section_of
from tests.support.loose_reader import read_loose

Break = Callable[[Form, Loose], None]
every_form = pytest.mark.parametrize("name", FORMS)
calling = pytest.mark.parametrize("name", CALLING)


def _record(form: Form, image: Loose, row: int, symbol: str, value: int) -> None:
    """Let a record point elsewhere."""
    place = form.word * row
    addend = value if form.rela else 0
    image.rows[form.table][row] = (place, form.absolute, symbol, addend)
    if not form.rela:
        table = section_of(image, form.table)
        value &= (1 << form.bits) - 1
        table.data = table.data[:place] + image.table([value]) + table.data[place + form.word :]


@every_form
def test_a_table_that_nothing_fills(name: str, tmp_path: Path) -> None:
    """All of its records are null: a loader skips them."""
    form = FORMS[name]
    image = module(form)
    del image.rows[form.table]
    section_of(image, form.table).data = bytes(6 * form.word)
    path = put(image, tmp_path)
    data = path.read_bytes()
    row = ftpatch("status", "--json", path).only
    assert (row["records"], row["null"], row["sites"]) == (6, 6, 0)
    for command in (["disable"], ["enable", "--to", "new_one"]):
        result = ftpatch(*command, "--in-place", "--json", path)
        assert (result.code, result.only["changed"]) == (0, 0)
    assert path.read_bytes() == data
    rows = ftpatch("check", "--json", path).json
    assert len([row for row in rows if "no relocation" in row["message"]]) == 6


@every_form
def test_words_that_nothing_fills(name: str, tmp_path: Path) -> None:
    """They are addresses of nothing, whatever they say."""
    form = FORMS[name]
    image = module(form)
    section_of(image, form.table).data = image.table([0x40, 0x70, 1, 2, 3, 4])
    if form.rela:
        image.rows[form.table] = image.rows[form.table][:1]
    else:
        image.rows[form.table] = []
    path = put(image, tmp_path)
    rows = ftpatch("list", "--json", path).json
    assert {row["state"] for row in rows[1:]} == {"unexpected"}
    assert ftpatch("check", path).code == 1
    assert ftpatch("enable", "--to", "printk", path).code == 1
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


@calling
def test_relocations_of_a_part_of_the_table(name: str, tmp_path: Path) -> None:
    """Then records cannot be taken out; --keep-records says so, and can."""
    form = FORMS[name]
    image = module(form)
    del image.rows[form.table][4]
    if not form.rela:
        table = section_of(image, form.table)
        table.data = table.data[: 4 * form.word] + bytes(form.word) + table.data[5 * form.word :]
    path = put(image, tmp_path)
    data = path.read_bytes()
    assert ftpatch("status", "--json", path).only["null"] == 1
    result = ftpatch("disable", path)
    assert result.code == 1 and "--keep-records leaves the table alone" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]
    row = ftpatch("disable", "--in-place", "--json", path, "--keep-records").only
    assert (row["changed"], row["dropped"]) == (5, 0)
    assert len(read_loose(path).contents[form.table]) == 6 * form.word
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data


@calling
def test_entries_in_another_order_than_slots(name: str, tmp_path: Path) -> None:
    """No linker leaves them so; they are not moved about on a guess."""
    form = FORMS[name]
    image = module(form)
    image.rows[form.table].reverse()
    path = put(image, tmp_path)
    assert ftpatch("status", "--json", path).only["sites"] == 6
    result = ftpatch("disable", path)
    assert result.code == 1 and "does not have one relocation per record" in result.err


@every_form
def test_a_record_twice(name: str, tmp_path: Path) -> None:
    """check says so; what goes for the site goes for both of them."""
    form = FORMS[name]
    image = module(form)
    _record(form, image, 5, ".text", 0)
    path = put(image, tmp_path)
    data = path.read_bytes()
    invariants = {row["invariant"] for row in ftpatch("check", "--json", path).json}
    assert "record-unique" in invariants
    result = ftpatch("enable", "--to", "printk", "--json", path, "-f", "open_it")
    if result.code == 0:
        output = path.with_name("demo.ko.ftpatch")
        assert PLACES["open_it"] not in read_loose(output).records(form.table)
        assert ftpatch("undo", output).code == 0 and output.read_bytes() == data
    else:
        assert result.code == 1 and result.only["failed"][0]["reason"].startswith("EINVAL")


def _to_data(form: Form, image: Loose) -> None:
    image.sections.append(Section(".data", form.site * 4, flags=3))
    image.symbols.append(Symbol("variable", 0, 8, 1, section=".data"))
    _record(form, image, 2, "variable", 0)


def _to_no_section(form: Form, image: Loose) -> None:
    image.symbols.append(Symbol("nowhere", 0, 8, 2, section="no such section"))
    _record(form, image, 2, "nowhere", 0)


def _to_another_file(form: Form, image: Loose) -> None:
    _record(form, image, 2, "printk", 0)


def _behind_its_section(form: Form, image: Loose) -> None:
    _record(form, image, 2, ".text.unlikely", 1 << 20)


def _before_all(form: Form, image: Loose) -> None:
    _record(form, image, 2, ".text", -(1 << 20))


def _to_no_symbol(form: Form, image: Loose) -> None:
    _record(form, image, 2, "999", 0)


def _to_bss(form: Form, image: Loose) -> None:
    image.sections.append(Section(".bss", type=8, flags=7, size=64))
    image.symbols.append(Symbol("zeros", 0, 8, 1, section=".bss"))
    _record(form, image, 2, "zeros", 0)


@every_form
@pytest.mark.parametrize(
    "damage",
    [
        _to_data,
        _to_no_section,
        _to_another_file,
        _behind_its_section,
        _before_all,
        _to_no_symbol,
        _to_bss,
    ],
)
def test_records_of_what_is_no_code(name: str, damage: Break, tmp_path: Path) -> None:
    """EFAULT, and nothing is written; the other sites can be chosen."""
    form = FORMS[name]
    image = module(form)
    damage(form, image)
    path = put(image, tmp_path)
    data = path.read_bytes()
    status = ftpatch("status", "--json", path)
    if status.code == 2:
        assert status.err.count("\n") == 1 and "internal" not in status.err
        return
    assert status.only["states"]["unexpected"] == 1
    assert ftpatch("check", path).code == 1
    result = ftpatch("enable", "--to", "new_one", "--json", path)
    assert result.code == 1
    (failed,) = result.only["failed"]
    assert failed["reason"] == "EFAULT: not in executable text of the file"
    few = ["-f", "open_it", "-f", "once"]
    assert ftpatch("enable", "--to", "new_one", "--in-place", path, *few).code == 0
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data


def _taken_back(output: Path, data: bytes) -> None:
    """Undo what was written, if it is no copy."""
    if output.exists() and output.read_bytes() != data:
        assert ftpatch("undo", output).code == 0
        assert output.read_bytes() == data
    output.unlink(missing_ok=True)


@every_form
@pytest.mark.parametrize("by", [0, 2, 8, STEP, 4 * STEP - 4])
def test_sections_that_overlap(name: str, by: int, tmp_path: Path) -> None:
    """Two texts in the same bytes: whatever is made of them, no byte is written for two sites, and
    what is written can be taken back."""
    form = FORMS[name]
    image = module(form)
    start = read_loose(image.build()).offsets[".text"]
    image.edits[".init.text"] = {"sh_offset": start + by}
    path = put(image, tmp_path)
    data = path.read_bytes()
    for command in (["disable"], ["enable", "--to", "new_one"], ["enable", "--to", "printk"]):
        result = ftpatch(*command, path, "--force")
        assert result.code in (0, 1, 2) and "internal" not in result.err, result
        output = path.with_name("demo.ko.ftpatch")
        assert output.exists() == (result.code == 0)
        _taken_back(output, data)
    assert path.read_bytes() == data


@every_form
@pytest.mark.parametrize("over", [".text", ".symtab", ".strtab", "headers"])
def test_a_table_over_other_things(name: str, over: str, tmp_path: Path) -> None:
    form = FORMS[name]
    image = module(form)
    place = 0 if over == "headers" else read_loose(image.build()).offsets[over]
    image.edits[form.table] = {"sh_offset": place}
    path = put(image, tmp_path)
    data = path.read_bytes()
    for command in (["disable"], ["enable", "--to", "new_one"]):
        result = ftpatch(*command, path)
        assert result.code in (0, 1, 2) and "internal" not in result.err, result
        output = path.with_name("demo.ko.ftpatch")
        if output.exists():
            sites = ftpatch("status", "--json", path).only["sites"]
            assert ftpatch("status", "--json", output).only["sites"] == sites
        _taken_back(output, data)
    assert path.read_bytes() == data


@every_form
def test_no_symbols_at_all(name: str, tmp_path: Path) -> None:
    """Nothing can be resolved then."""
    image = module(FORMS[name])
    image.edits[".symtab"] = {"sh_type": 1}
    path = put(image, tmp_path)
    for verb in ("status", "list", "check", "disable"):
        result = ftpatch(verb, path)
        assert result.code in (0, 1, 2) and "internal" not in result.err
    result = ftpatch("enable", "--to", "new_one", path, "--force")
    assert result.code in (0, 1, 2) and "internal" not in result.err
