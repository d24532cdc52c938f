# SPDX-License-Identifier: MIT
"""disable on kernel modules: NOPs whose relocations do nothing, and a table without the records."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_forms import CALLING, FORMS, PADS, Form
from tests.support.loose_images import NAMES, PLACES, module, put
from tests.support.loose_reader import Entry, Read, read_loose
from tests.support.readers import disassembled

BY = ("section", "function", "label")
calling = pytest.mark.parametrize("name", CALLING)
every_form = pytest.mark.parametrize("name", FORMS)


def _filters(names: list[str]) -> list[str]:
    return [word for name in names for word in ("-f", name)]


def _code(read: Read, form: Form, name: str) -> bytes:
    where, at = PLACES[name]
    at += form.before
    return read.contents[where][at : at + len(form.enabled)]


def _entry(read: Read, form: Form, name: str) -> Entry:
    where, at = PLACES[name]
    (entry,) = read.at(where, at + form.before + form.place)
    return entry


@calling
@pytest.mark.parametrize("by", BY)
def test_one_site(name: str, by: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form, by=by), tmp_path)
    before = read_loose(path)
    row = ftpatch("disable", "--in-place", "--json", path, "-f", "read_it").only
    assert (row["changed"], row["dropped"], row["failed"]) == (1, 1, [])
    read = read_loose(path)
    assert _code(read, form, "read_it") == form.disabled
    (insn,) = disassembled(form.arch, form.disabled, 0)
    assert insn.size == 5 and insn.mnemonic in ("nop", "lea")
    entry = _entry(read, form, "read_it")
    assert (entry.type, entry.row) == (form.neutral, 0)
    assert set(read.records(form.table)) == set(PLACES.values()) - {PLACES["read_it"]}
    assert len(read.records(form.table)) == len(read.relocations[form.table]) == 5
    for other in set(NAMES) - {"read_it"}:
        assert _code(read, form, other) == form.site
        assert _entry(read, form, other) == _entry(before, form, other)
    assert read.symbols == before.symbols


@calling
@pytest.mark.parametrize("count", range(1, len(NAMES) + 1))
def test_exactly_the_others_survive(name: str, count: int, tmp_path: Path) -> None:
    """Every set of that many sites, of a table that is in no order."""
    form = FORMS[name]
    order = [3, 0, 5, 2, 1, 4]
    sets = list(itertools.combinations(NAMES, count))
    for chosen in random.Random(count).sample(sets, min(len(sets), 8)):
        path = put(module(form, order=order), tmp_path)
        few = _filters(list(chosen))
        assert ftpatch("disable", "--in-place", path, *few).code == 0
        read = read_loose(path)
        kept = [place for other, place in PLACES.items() if other not in chosen]
        assert sorted(read.records(form.table)) == sorted(kept)
        rows = ftpatch("list", "--json", path).json
        assert {r["symbol"] for r in rows if r["dropped"]} == set(chosen)
        assert {r["symbol"] for r in rows if r["state"] == "nop"} == set(chosen)


@calling
def test_records_of_symbols_keep_their_symbols(name: str, tmp_path: Path) -> None:
    """What moves into a hole is the whole relocation."""
    form = FORMS[name]
    path = put(module(form, by="label"), tmp_path)
    assert ftpatch("disable", "--in-place", path, "-f", "open_it", "-f", "write_it").code == 0
    read = read_loose(path)
    named = {entry.symbol for entry in read.relocations[form.table]}
    assert named == {".LPFE1", ".LPFE3", ".LPFE4", ".LPFE5"}
    places = [entry.place for entry in read.relocations[form.table]]
    assert places == [form.word * i for i in range(4)], "sorted, as every linker leaves them"


@calling
def test_all_sites(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form), tmp_path)
    row = ftpatch("disable", "--in-place", "--json", path).only
    assert (row["changed"], row["dropped"]) == (6, 6)
    read = read_loose(path)
    assert read.records(form.table) == [] == read.relocations[form.table]
    status = ftpatch("status", "--json", path).only
    assert (status["records"], status["dropped"], status["sites"]) == (6, 6, 6)
    assert status["states"] == {"nop": 6, "call": 0, "unexpected": 0}
    assert ftpatch("check", path).code == 0


@calling
@pytest.mark.parametrize("nop", ["p6", "nop5", "jmp"])
def test_another_nop(name: str, nop: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form), tmp_path)
    assert ftpatch("disable", "--in-place", path, "--nop", nop, "-f", "once").code == 0
    read = read_loose(path)
    forms = {"p6": "0f1f440000", "nop5": "6666666690", "jmp": "eb03909090"}
    assert _code(read, form, "once") == bytes.fromhex(forms[nop])
    assert (_entry(read, form, "once").type, _entry(read, form, "once").row) == (form.neutral, 0)


def test_what_the_loader_of_i386_adds_is_nothing(tmp_path: Path) -> None:
    """R_386_32 of symbol 0 adds its value, which is 0, to what stands there (apply_relocate)."""
    form = FORMS["i386"]
    path = put(module(form), tmp_path)
    assert ftpatch("disable", "--in-place", path).code == 0
    read = read_loose(path)
    assert read.symbols[0] == ("", "SHN_UNDEF", 0, "STB_LOCAL")


@pytest.mark.parametrize("name", PADS)
def test_pads_are_nops_already(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    data = path.read_bytes()
    row = ftpatch("disable", "--in-place", "--json", path).only
    assert (row["changed"], row["unchanged"], row["dropped"]) == (0, 6, 0)
    assert path.read_bytes() == data


@calling
def test_keep_records_and_the_bug_that_comes_of_it(name: str, tmp_path: Path) -> None:
    """What a kernel says on insmod; of the call it only knows where it goes once it is loaded."""
    form = FORMS[name]
    path = put(module(form), tmp_path)
    few = ["-f", "set_up", "--keep-records"]
    assert ftpatch("disable", "--in-place", path, *few).code == 0
    assert len(read_loose(path).records(form.table)) == 6
    result = ftpatch("check", "--json", path)
    assert result.code == 1
    bugs = [row for row in result.json if row["invariant"] == "ftrace_init"]
    assert len(bugs) == 1 and "ftrace is off from there on" in bugs[0]["message"]
    nop = form.disabled.hex(":")
    assert bugs[0]["bug"] == (
        "------------[ ftrace bug ]------------\n"
        "ftrace failed to modify\n"
        "[<.init.text+0x0>] set_up+0x0/0x30 [demo]\n"
        f" actual:   {nop}\n"
        " expected: e8:??:??:??:??\n"
        "Initializing ftrace call sites"
    )


@calling
def test_twice_changes_nothing(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    assert ftpatch("disable", "--in-place", path, "-f", "*_it").code == 0
    once = path.read_bytes()
    row = ftpatch("disable", "--in-place", "--json", path, "-f", "*_it").only
    assert (row["changed"], row["unchanged"], row["dropped"]) == (0, 4, 0)
    assert path.read_bytes() == once


@calling
def test_keep_records_leaves_dropped_ones_where_they_are(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form), tmp_path)
    assert ftpatch("disable", "--in-place", path, "-f", "open_it").code == 0
    assert ftpatch("disable", "--in-place", path, "-f", "read_it", "--keep-records").code == 0
    assert set(read_loose(path).records(form.table)) == set(PLACES.values()) - {PLACES["open_it"]}
    row = ftpatch("disable", "--in-place", "--json", path).only
    assert (row["changed"], row["dropped"]) == (4, 5), "now the kept record goes as well"
    assert read_loose(path).records(form.table) == []


@every_form
def test_a_dry_run_writes_nothing(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    data = path.read_bytes()
    result = ftpatch("disable", "--dry-run", path)
    assert result.code == 0 and result.out.endswith("dry run: nothing was written\n")
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"] and path.read_bytes() == data


def test_what_the_summary_says(tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path)
    result = ftpatch("disable", path, "-f", "*_it", "-v")
    assert "6 sites, 4 selected: 4 changed, 0 unchanged, 4 dropped, 0 refused" in result.out
    assert "4 records dropped: these functions are out of reach of ftrace" in result.out
    assert "open_it+0x0" in result.out.splitlines()[-4]
    assert "new code at each site: 0f 1f 44 00 00" in result.out
