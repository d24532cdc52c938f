# SPDX-License-Identifier: MIT
"""enable on kernel modules: calls are relocations, and a callee may be a symbol that is new."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_forms import CALLING, FORMS, PADS
from tests.support.loose_images import PLACES, module, put
from tests.support.loose_reader import Read, read_loose

every_form = pytest.mark.parametrize("name", FORMS)
with_pads = pytest.mark.parametrize("name", PADS)
calling = pytest.mark.parametrize("name", CALLING)


def _readelf(*arguments: str | Path) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf: install binutils")
    done = subprocess.run(
        ["readelf", "-W", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    assert not done.stderr, done.stderr
    return done.stdout


@every_form
@pytest.mark.parametrize("to", ["printk", "close_it", "my_tracer"])
def test_all_sites(name: str, to: str, tmp_path: Path) -> None:
    """To a symbol that is imported already, to one of the module, and to one that is neither."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    before = read_loose(path)
    row = ftpatch("enable", "--in-place", "--json", path, "--to", to).only
    assert (row["changed"], row["dropped"], row["failed"]) == (6, 6, [])
    assert row.get("undefined", "") == ("my_tracer" if to == "my_tracer" else "")
    read = read_loose(path)
    assert read.calls(form, to, *PLACES.values())
    assert read.records(form.table) == []
    assert read.undefined() - before.undefined() == ({to} if to == "my_tracer" else set())
    status = ftpatch("status", "--json", path).only
    assert status["targets"] == {to: 6} and status["dropped"] == 6
    assert ftpatch("check", path).code == 0, "the journal says that these calls are meant"


@every_form
def test_other_relocations_stay(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form), tmp_path)
    before = read_loose(path)
    assert ftpatch("enable", "--in-place", path, "--to", "new_one", "-f", "read_it").code == 0
    read = read_loose(path)
    where, at = PLACES["read_it"]
    ours = at + form.before + form.place
    for section, entries in before.relocations.items():
        if section != form.table:
            kept = [e for e in read.relocations[section] if (section, e.place) != (where, ours)]
            assert kept == [e for e in entries if (section, e.place) != (where, ours)]
    for section, held in before.contents.items():
        if section in (".text.unlikely", ".init.text", ".modinfo"):
            assert read.contents[section] == held
    assert read.symbols[: len(before.symbols)] == before.symbols
    assert read.symbols[len(before.symbols) :] == [("new_one", "SHN_UNDEF", 0, "STB_GLOBAL")]


@every_form
def test_what_readelf_says(name: str, tmp_path: Path) -> None:
    """Names of types and symbols by another reader, which also finds nothing amiss."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    clean = _readelf("-a", path)
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer", "-f", "open_it").code == 0
    _readelf("-a", path)
    kind = {
        "x86_64": "R_X86_64_PLT32",
        "i386": "R_386_PC32",
        "arm64": "R_AARCH64_CALL26",
        "riscv64": "R_RISCV_CALL_PLT",
    }[form.arch]
    lines = [text.split() for text in _readelf("-r", path).splitlines() if "my_tracer" in text]
    assert len(lines) == 1 and lines[0][2] == kind
    assert int(lines[0][0], 16) == form.before + form.place
    symbols = [text.split() for text in _readelf("-s", path).splitlines() if "my_tracer" in text]
    assert [words[3:] for words in symbols] == [["NOTYPE", "GLOBAL", "DEFAULT", "UND", "my_tracer"]]
    assert "my_tracer" not in clean


@with_pads
def test_a_section_that_had_no_relocations(name: str, tmp_path: Path) -> None:
    """Then there is one section more."""
    form = FORMS[name]
    image = module(form)
    path = put(image, tmp_path)
    before = read_loose(path)
    assert ".init.text" not in before.relocations
    few = ["-f", "set_up", "-f", "once"]
    assert ftpatch("enable", "--in-place", path, "--to", "printk", *few).code == 0
    read = read_loose(path)
    assert read.calls(form, "printk", PLACES["set_up"], PLACES["once"])
    assert len(read.relocations[".init.text"]) == len(read.relocations[".text.unlikely"]) == 1
    text = _readelf("-S", path)
    count = len(image.sections) + len(image.rows) + 4  # null, symbols, two string tables
    assert f"There are {count + 2} section headers" in text
    data = path.read_bytes()
    assert int.from_bytes(data[60:62], "little") == count + 2
    assert int.from_bytes(data[40:48], "little") > len(image.build()), "behind the old end"


@with_pads
def test_a_file_without_any_relocations(name: str, tmp_path: Path) -> None:
    """Its records are null then, and there is no site; so nothing has to be added to nothing."""
    image = module(FORMS[name])
    image.rows.clear()
    result = ftpatch("enable", "--json", put(image, tmp_path), "--to", "printk")
    assert (result.code, result.only["changed"]) == (0, 0)


@every_form
def test_a_second_command_finds_the_symbol_of_the_first(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form), tmp_path)
    assert ftpatch("enable", "--in-place", path, "--to", "my_tracer", "-f", "open_it").code == 0
    symbols = read_loose(path).symbols
    row = ftpatch(
        "enable", "--in-place", "--json", path, "--to", "my_tracer", "-f", "set_up", "-f", "once"
    ).only
    assert row["changed"] == 2 and row["undefined"] == "my_tracer"
    read = read_loose(path)
    assert read.symbols == symbols
    assert read.calls(form, "my_tracer", *(PLACES[n] for n in ("open_it", "set_up", "once")))
    again = ftpatch("enable", "--in-place", "--json", path, "--to", "my_tracer", "-f", "once").only
    assert (again["changed"], again["unchanged"]) == (0, 1)


@every_form
def test_a_symbol_that_nothing_calls_any_more(name: str, tmp_path: Path) -> None:
    """A loader resolves every undefined symbol: an unused one would keep the module from loading,
    so it is absolute until it is wanted again."""
    form = FORMS[name]
    path = put(module(form), tmp_path)

    def enable(to: str, *functions: str) -> Read:
        few = [word for function in functions for word in ("-f", function)]
        assert ftpatch("enable", "--in-place", path, "--to", to, *few).code == 0
        return read_loose(path)

    read = enable("first_one", "open_it", "read_it")
    read = enable("second_one", "open_it")
    assert read.where("first_one") == read.where("second_one") == ["SHN_UNDEF"]
    read = enable("second_one", "read_it")
    assert (read.where("first_one"), read.where("second_one")) == (["SHN_ABS"], ["SHN_UNDEF"])
    read = enable("first_one", "open_it", "read_it")
    assert (read.where("first_one"), read.where("second_one")) == (["SHN_UNDEF"], ["SHN_ABS"])
    assert ftpatch("disable", "--in-place", path).code == 0
    read = read_loose(path)
    assert read.where("first_one") == read.where("second_one") == ["SHN_ABS"]
    assert read.undefined() == {"printk", form.mcount} - {""}
    assert ftpatch("undo", "--all", path).code == 0
    assert path.read_bytes() == module(form).build()


@with_pads
def test_disabled_again(name: str, tmp_path: Path) -> None:
    """The added entry stays and does nothing; the record is back, since this is what it was."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    before = read_loose(path)
    assert ftpatch("enable", "--in-place", path, "--to", "printk", "-f", "*_it").code == 0
    row = ftpatch("disable", "--in-place", "--json", path).only
    assert (row["changed"], row["restored"], row["dropped"]) == (4, 4, 0)
    read = read_loose(path)
    assert read.records(form.table) == before.records(form.table)
    at = PLACES["read_it"][1] + form.before
    assert read.contents[".text"][at : at + 8] == form.disabled
    (entry,) = read.at(".text", at + form.place)
    assert (entry.type, entry.row) == (form.neutral, 0)
    assert ftpatch("check", path).code == 0
    assert ftpatch("enable", "--in-place", path, "--to", "open_it", "-f", "read_it").code == 0
    assert read_loose(path).calls(form, "open_it", PLACES["read_it"]), "and is used again"
    assert len(read_loose(path).relocations[".text"]) == len(read.relocations[".text"])


@calling
@pytest.mark.parametrize("first", [["disable"], ["enable", "--to", "printk"]])
def test_back_to_the_compiled_in_callee(name: str, first: list[str], tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form, order=[5, 1, 4, 0, 2, 3]), tmp_path)
    before = read_loose(path)
    assert ftpatch(*first, "--in-place", path).code == 0
    row = ftpatch("enable", "--in-place", "--json", path, "--to", "__fentry__").only
    assert (row["changed"], row["restored"], row["dropped"]) == (6, 6, 0)
    read = read_loose(path)
    assert read.relocations == before.relocations and read.symbols == before.symbols
    for section, held in before.contents.items():
        assert read.contents[section] == held
    assert ftpatch("check", path).code == 0


@every_form
def test_an_entry_changes_while_others_are_added(name: str, tmp_path: Path) -> None:
    """In one section: what is laid anew is what it should be, not what it was."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    data = path.read_bytes()
    assert ftpatch("enable", "--in-place", path, "--to", "first_one", "-f", "open_it").code == 0
    assert ftpatch("enable", "--in-place", path, "--to", "second_one", "-f", "*_it").code == 0
    read = read_loose(path)
    assert read.calls(form, "second_one", *list(PLACES.values())[:4])
    assert (read.where("first_one"), read.where("second_one")) == (["SHN_ABS"], ["SHN_UNDEF"])
    assert ftpatch("disable", "--in-place", path, "-f", "open_it").code == 0
    assert ftpatch("enable", "--in-place", path, "--to", "printk").code == 0
    assert read_loose(path).calls(form, "printk", *PLACES.values())
    assert ftpatch("status", "--json", path).only["targets"] == {"printk": 6}
    assert ftpatch("undo", "--all", path).code == 0 and path.read_bytes() == data
