# SPDX-License-Identifier: MIT
"""undo on kernel modules: what was laid behind the end goes, what was laid anew is where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_forms import CALLING, FORMS, PADS
from tests.support.loose_images import NAMES, STEP, module, put
from tests.support.loose_reader import read_loose

every_form = pytest.mark.parametrize("name", FORMS)
COMMANDS = (
    ("enable", "--to", "new_one", "-f", "open_it", "-f", "set_up"),
    ("enable", "--to", "new_two", "-f", "open_it", "-f", "once"),
    ("disable", "-f", "open_it"),
    ("enable", "--to", "close_it", "-f", "read_it", "--keep-records"),
    ("enable", "--to", "new_one", "-f", "*"),
    ("disable",),
)
"""Each has something to do where the others have been, whatever the form."""


@every_form
def test_one_after_the_other(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name], order=[4, 2, 0, 5, 1, 3]), tmp_path)
    states = [path.read_bytes()]
    for command in COMMANDS:
        assert ftpatch(*command, "--in-place", path).code == 0, command
        states.append(path.read_bytes())
        assert states[-1] != states[-2], command
    everything = tmp_path / "all.ko"
    assert ftpatch("undo", "--all", path, "-o", everything).code == 0
    assert everything.read_bytes() == states[0]
    for before in reversed(states[:-1]):
        row = ftpatch("undo", "--json", path).only
        assert row["length"] == len(before)
        assert path.read_bytes() == before
    assert "no journal" in ftpatch("undo", path).err


@every_form
@pytest.mark.parametrize("end", range(1, len(COMMANDS) + 1))
def test_a_part_of_them_at_once(name: str, end: int, tmp_path: Path) -> None:
    """undo, then another command, then undo --all: the journal is what the file says it is."""
    path = put(module(FORMS[name], by="label"), tmp_path)
    data = path.read_bytes()
    for command in COMMANDS[:end]:
        assert ftpatch(*command, "--in-place", path).code == 0
    assert ftpatch("undo", path).code == 0
    assert ftpatch("enable", "--to", "another", "--in-place", path, "-f", "once").code == 0
    rows = ftpatch("undo", "--all", "--json", path).json
    assert len(rows) == end and rows[-1]["length"] == len(data)
    assert path.read_bytes() == data


@every_form
def test_what_another_tool_changed_is_refused(name: str, tmp_path: Path) -> None:
    """In the code, in its relocation, or in a header."""
    form = FORMS[name]
    image = module(form)
    path = put(image, tmp_path)
    few = ["-f", "read_it"]
    assert ftpatch("enable", "--to", "printk", "--in-place", path, *few).code == 0
    good, read = path.read_bytes(), read_loose(path)
    places = [read.offsets[".text"] + STEP + form.before + form.place]
    wide = form.word == 8
    headers = int.from_bytes(good[40:48] if wide else good[32:36], "little")
    table = 1 + [s.name for s in image.sections].index(form.table)
    places.append(headers + table * (64 if wide else 40) + (32 if wide else 20))  # sh_size
    if form.mcount:  # r_info of the third entry, of two for each function
        entry = (3 if form.rela else 2) * form.word
        places.append(
            read.offsets[".rela.text" if form.rela else ".rel.text"] + 2 * entry + form.word
        )
    for at in places:
        data = bytearray(good)
        data[at] ^= 0x40
        path.write_bytes(data)
        result = ftpatch("undo", path)
        assert result.code in (1, 2) and result.err.count("\n") == 1, (at, result)
        assert path.read_bytes() == data


@every_form
def test_a_torn_journal_gives_nothing_back(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    assert ftpatch("enable", "--to", "new_one", "--in-place", path).code == 0
    whole = path.read_bytes()
    for cut in (1, 8, 56, 57, 100):
        path.write_bytes(whole[:-cut])
        result = ftpatch("undo", path)
        assert result.code == 2 and "no journal" in result.err
        assert path.read_bytes() == whole[:-cut]


@pytest.mark.parametrize("name", PADS)
def test_without_its_journal(name: str, tmp_path: Path) -> None:
    """A patched file is a module like any other then: sites without a record are not known."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    assert ftpatch("enable", "--to", "new_one", "--in-place", path, "-f", "*_it").code == 0
    end = path.read_bytes().rindex(b"new_one\0")
    assert end > len(module(form).build()), "the strings were laid behind the old end"
    path.write_bytes(path.read_bytes()[:-10])
    row = ftpatch("status", "--json", path).only
    assert (row["records"], row["sites"], row["dropped"]) == (2, 2, 0)
    result = ftpatch("disable", "--json", path)
    assert result.only["changed"] == 0


@pytest.mark.parametrize("name", CALLING)
def test_dropped_records_keep_their_places(name: str, tmp_path: Path) -> None:
    """In a list of sites, whatever moved into the holes."""
    path = put(module(FORMS[name]), tmp_path)
    assert ftpatch("disable", "--in-place", path, "-f", "open_it", "-f", "set_up").code == 0
    rows = ftpatch("list", "--json", path).json
    assert [row["symbol"] for row in rows if row["dropped"]] == ["open_it", "set_up"]
    assert [row["symbol"] for row in rows] == NAMES


@every_form
def test_nothing_to_take_back(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    for options in ([], ["--all"], ["--dry-run"]):
        result = ftpatch("undo", path, *options)
        assert result.code == 2 and "no journal" in result.err
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]
