# SPDX-License-Identifier: MIT
"""Kernel modules as they are read: records and sites of every form, tables in any order."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import SHF_ALLOC, SHF_EXECINSTR, Section, Symbol
from tests.support.loose_forms import CALLING, FORMS, PADS
from tests.support.loose_images import FUNCTIONS, NAMES, STEP, Loose, module, put, section_of
from tests.support.loose_reader import read_loose

BY = ("section", "function", "label")
every_form = pytest.mark.parametrize("name", FORMS)


@every_form
@pytest.mark.parametrize("by", BY)
def test_status(name: str, by: str, tmp_path: Path) -> None:
    form = FORMS[name]
    path = put(module(form, by=by), tmp_path)
    row = ftpatch("status", "--json", path).only
    number = len(FUNCTIONS)
    calls = number if form.mcount else 0
    assert row == {
        "path": str(path),
        "container": "module",
        "arch": form.arch,
        "table": form.table,
        "records": number,
        "null": 0,
        "dropped": 0,
        "sites": number,
        "lost": 0,
        "states": {"nop": number - calls, "call": calls, "unexpected": 0},
        "targets": {form.mcount: calls} if calls else {},
    }


@every_form
@pytest.mark.parametrize("by", BY)
def test_each_site_is_where_its_record_points(name: str, by: str, tmp_path: Path) -> None:
    """pyelftools resolves the records; the bytes of the file say where in it a section is."""
    form = FORMS[name]
    path = put(module(form, by=by), tmp_path)
    data, read = path.read_bytes(), read_loose(path)
    expected = {read.offsets[where] + at + form.before for where, at in read.records(form.table)}
    starts = {row["offset"] - form.lead for row in ftpatch("list", "--json", path).json}
    assert starts == expected
    for at in starts:
        assert data[at : at + len(form.pad)] == form.pad


@every_form
@pytest.mark.parametrize("seed", range(3))
def test_records_in_any_order(name: str, seed: int, tmp_path: Path) -> None:
    """The kernel sorts the table of each module that it loads; compilers do not."""
    order = list(range(len(FUNCTIONS)))
    random.Random(seed).shuffle(order)
    path = put(module(FORMS[name], order=order), tmp_path)
    rows = ftpatch("list", "--json", path).json
    assert [row["symbol"] for row in rows] == [NAMES[i] for i in order]
    assert ftpatch("check", path).code == 0


@every_form
def test_nothing_is_wrong_with_what_compilers_leave(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    result = ftpatch("check", "--json", path)
    assert (result.code, result.out, result.err) == (0, "", "")


@every_form
def test_a_module_without_a_table(name: str, tmp_path: Path) -> None:
    """All of its functions may be notrace: nothing is wrong with it, and there is nothing to do."""
    image = module(FORMS[name])
    del image.rows[FORMS[name].table]
    image.sections.remove(section_of(image, FORMS[name].table))
    path = put(image, tmp_path)
    assert ftpatch("check", path).code == 0
    for verb in ("status", "list", "disable"):
        result = ftpatch(verb, path)
        assert result.code == 2 and "no __mcount_loc" in result.err
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def _with_padding_table(image: Loose) -> Loose:
    """As x86 kernels with call depth tracking: a table of what stands before functions."""
    image.sections.append(
        Section("__patchable_function_entries", bytes(8 * len(FUNCTIONS)), align=8)
    )
    image.rows["__patchable_function_entries"] = [
        (8 * i, 1, where, 16) for i, (_, where) in enumerate(FUNCTIONS)
    ]
    return image


def test_the_second_table_of_x86_is_none(tmp_path: Path) -> None:
    path = put(_with_padding_table(module(FORMS["x86_64"])), tmp_path)
    row = ftpatch("status", "--json", path).only
    assert (row["table"], row["sites"]) == ("__mcount_loc", len(FUNCTIONS))
    assert ftpatch("check", path).code == 0
    before = read_loose(path).records("__patchable_function_entries")
    assert ftpatch("disable", "--in-place", path).code == 0
    assert read_loose(path).records("__patchable_function_entries") == before


def test_a_module_of_x86_with_padding_only(tmp_path: Path) -> None:
    """As some in Rust: their loader reads __mcount_loc and nothing else."""
    image = _with_padding_table(module(FORMS["x86_64"]))
    del image.rows["__mcount_loc"]
    image.sections.remove(section_of(image, "__mcount_loc"))
    path = put(image, tmp_path)
    assert "no __mcount_loc" in ftpatch("status", path).err
    assert ftpatch("check", path).code == 0


@pytest.mark.parametrize("name", PADS)
def test_the_loader_takes_the_first_section_of_a_name(name: str, tmp_path: Path) -> None:
    """find_sec() in kernel/module/main.c gives no other."""
    form = FORMS[name]
    image = module(form, FUNCTIONS[:2])
    image.sections.append(Section(form.table, bytes(form.word), align=form.word))
    assert ftpatch("status", "--json", put(image, tmp_path)).only["records"] == 2


@every_form
def test_an_object_is_no_module(name: str, tmp_path: Path) -> None:
    """No ftrace_init goes over its table."""
    path = put(module(FORMS[name], name=""), tmp_path, "demo.o")
    row = ftpatch("status", "--json", path).only
    assert (row["container"], row["sites"]) == ("object", len(FUNCTIONS))
    assert "ftrace_module_init" not in ftpatch("check", path).out


@every_form
@pytest.mark.parametrize(
    ("filters", "chosen"),
    [
        (["*_it"], NAMES[:4]),
        (["*:mod:demo"], NAMES),
        (["*:mod:d*"], NAMES),
        (["open_it:mod:demo", "once"], ["open_it", "once"]),
        ([":mod:demo"], NAMES),
        (["*:mod:demo", "!read*:mod:demo"], [n for n in NAMES if n != "read_it"]),
        (["!*_it"], ["set_up", "once"]),
    ],
)
def test_filters(name: str, filters: list[str], chosen: list[str], tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    options = [word for text in filters for word in ("-f", text)]
    result = ftpatch("list", "--json", path, *options)
    assert [row["symbol"] for row in result.json] == chosen, result.err


@pytest.mark.parametrize("text", ["*:mod:other", "open_it:mod:dem", "*:mod:", "nosuch:mod:demo"])
def test_filters_that_match_nothing(text: str, tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path)
    result = ftpatch("disable", path, "-f", text)
    assert result.code == 2 and f"filter {text!r} matches no site" in result.err


@pytest.mark.parametrize("module_filter", ["snd_hda", "snd-hda", "snd?hda"])
def test_a_dash_in_a_module_name_is_an_underscore(module_filter: str, tmp_path: Path) -> None:
    """KBUILD_MODNAME; .modinfo says the name since v4.14, before that only the file did."""
    image = module(FORMS["x86_64"])
    section_of(image, ".modinfo").data = b"license=GPL\0"
    path = put(image, tmp_path, "snd-hda.ko")
    assert len(ftpatch("list", "--json", path, "-f", f"*:mod:{module_filter}").json) == 6
    section_of(image, ".modinfo").data = b"name=other\0"
    assert ftpatch("list", put(image, tmp_path), "-f", f"*:mod:{module_filter}").code == 2


def test_a_site_by_its_address(tmp_path: Path) -> None:
    """list names it, and another command understands it."""
    path = put(module(FORMS["arm64"]), tmp_path)
    row = ftpatch("list", "--json", path).json[2]
    assert ftpatch("list", "--json", path, "-f", row["ip"]).only == row


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize("size", [0x20, 0x1000, 0x1234])
def test_what_is_behind_does_not_move_sites(name: str, size: int, tmp_path: Path) -> None:
    """Sections that are not loaded, and those that are not in the file."""
    image = module(FORMS[name])
    path = put(image, tmp_path)
    before = [row["offset"] for row in ftpatch("list", "--json", path).json]
    image.sections += [
        Section(".bss", b"", type=8, flags=SHF_ALLOC | 1, size=size),
        Section(".comment", bytes(size), flags=0, align=1),
    ]
    image.symbols.append(Symbol("counter", size // 2, 8, 1, section=".bss"))
    image.symbols.append(Symbol("remark", 0, 8, 1, section=".comment"))
    rows = ftpatch("list", "--json", put(image, tmp_path)).json
    assert [(row["offset"], row["symbol"]) for row in rows] == list(zip(before, NAMES, strict=True))


def test_functions_that_begin_at_the_same_offset_of_their_sections(tmp_path: Path) -> None:
    """With -ffunction-sections every function is at 0."""
    functions = [(f"f{i}", f".text.f{i}") for i in range(40)]
    image = module(FORMS["x86_64"], functions)
    rows = ftpatch("list", "--json", put(image, tmp_path)).json
    assert [row["symbol"] for row in rows] == [name for name, _ in functions]
    assert len({row["ip"] for row in rows}) == 40


def test_a_module_of_many_functions(tmp_path: Path) -> None:
    functions = [(f"function_{i}", ".text" if i % 3 else ".init.text") for i in range(3000)]
    path = put(module(FORMS["arm64-ops"], functions), tmp_path)
    rows = ftpatch("list", "--json", path).json
    assert [row["symbol"] for row in rows] == [name for name, _ in functions]
    offsets = sorted(row["offset"] for row in rows)
    assert min(b - a for a, b in itertools.pairwise(offsets)) == STEP


def test_text_that_is_not_executable(tmp_path: Path) -> None:
    image = module(FORMS["x86_64"])
    section_of(image, ".init.text").flags = SHF_ALLOC
    rows = ftpatch("list", "--json", put(image, tmp_path)).json
    assert [row["state"] for row in rows] == ["call"] * 4 + ["unexpected"] + ["call"]
    section_of(image, ".init.text").flags = SHF_ALLOC | SHF_EXECINSTR
    rows = ftpatch("list", "--json", put(image, tmp_path)).json
    assert {row["state"] for row in rows} == {"call"}
