# SPDX-License-Identifier: MIT
"""diff of kernel modules: sites and records, and what else a command did to the file."""

from __future__ import annotations

import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.support.command import ftpatch
from tests.support.loose_forms import CALLING, FORMS, PADS
from tests.support.loose_images import NAMES, module, put, section_of

every_form = pytest.mark.parametrize("name", FORMS)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def _patched(name: str, folder: Path, *command: str) -> tuple[Path, Path]:
    """A module, and a copy that a command changed."""
    before = put(module(FORMS[name]), folder, "before.ko")
    after = folder / "after.ko"
    assert ftpatch(*command, before, "-o", after).code == 0
    return before, after


def _rows(*arguments: str | Path) -> list[dict[str, Any]]:
    result = ftpatch("diff", "--json", *arguments)
    assert result.code == (1 if result.out else 0) and not result.err, result
    return result.json


@every_form
def test_sites_and_records(name: str, tmp_path: Path) -> None:
    before, after = _patched(name, tmp_path, "enable", "--to", "printk", "-f", "open_it")
    rows = _rows(before, after)
    site, record = rows[:2]
    assert (site["kind"], site["symbol"].split("+")[0]) == ("site", "open_it")
    assert "call __fentry__" in site["old"] if FORMS[name].mcount else "nop" in site["old"]
    assert "printk" in site["new"]
    assert (record["kind"], record["old"], record["new"]) == ("record", "in the table", "dropped")
    assert len([row for row in rows if row["kind"] in ("site", "record")]) == 2


@pytest.mark.parametrize("name", CALLING)
def test_headers_and_journal(name: str, tmp_path: Path) -> None:
    """Nothing is laid in where a relocation is there already; two sections are shorter."""
    form = FORMS[name]
    before, after = _patched(name, tmp_path, "disable", "-f", "*_it")
    rows = _rows(before, after)
    kinds = Counter(row["kind"] for row in rows)
    assert kinds == {"site": 4, "record": 4, "header": 2, "journal": 1}
    headers = {row["symbol"]: row for row in rows if row["kind"] == "header"}
    entries = f".rel{'a' * form.rela}{form.table}"
    assert headers.keys() == {form.table, entries}
    entry = form.word * (3 if form.rela else 2)
    for section, size in ((form.table, form.word), (entries, entry)):
        assert headers[section]["old"].endswith(f", {6 * size} bytes")
        assert headers[section]["new"].endswith(f", {2 * size} bytes")
    (journal,) = (row for row in rows if row["kind"] == "journal")
    assert journal["old"] == "" and journal["new"].endswith(" bytes")


@every_form
def test_what_was_laid_in(name: str, tmp_path: Path) -> None:
    """A new symbol takes new tables of symbols and strings: their headers, and the bytes."""
    before, after = _patched(name, tmp_path, "enable", "--to", "my_tracer", "-f", "open_it")
    rows = _rows(before, after)
    (laid,) = (row for row in rows if row["kind"] == "laid in")
    size = int(laid["new"].removesuffix(" bytes"))
    data, was = after.read_bytes(), before.read_bytes()
    assert len(was) < len(was) + size < len(data)
    assert b"my_tracer\0" in data[len(was) : len(was) + size]
    headers = {row["symbol"] for row in rows if row["kind"] == "header"}
    assert {".symtab", ".strtab"} <= headers
    assert not [row for row in rows if row["kind"] in ("data", "code", "appended")]


@pytest.mark.parametrize("name", PADS)
def test_a_section_more(name: str, tmp_path: Path) -> None:
    before, after = _patched(name, tmp_path, "enable", "--to", "printk", "-f", "set_up")
    assert not [row for row in _rows(before, after) if row["kind"] == "data"]


@every_form
def test_with_its_own_journal(name: str, tmp_path: Path) -> None:
    """Sites as with two files."""
    before, after = _patched(name, tmp_path, "enable", "--to", "my_tracer", "-n", "once")
    two, one = _rows(before, after), _rows(after)
    chosen = ("site", "record")
    assert [r for r in two if r["kind"] in chosen] == [r for r in one if r["kind"] in chosen]
    assert len([r for r in one if r["kind"] == "site"]) == len(NAMES) - 1


@every_form
def test_the_other_way_round(name: str, tmp_path: Path) -> None:
    before, after = _patched(name, tmp_path, "enable", "--to", "my_tracer")
    forth, back = _rows(before, after), _rows(after, before)

    def key(row: dict[str, Any], old: str, new: str) -> tuple[str, str, str, str]:
        return row["kind"], row["symbol"], row[old], row[new]

    assert sorted(key(r, "old", "new") for r in forth) == sorted(key(r, "new", "old") for r in back)


@every_form
def test_nothing_differs(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    other = put(module(FORMS[name]), tmp_path, "other.ko")
    for sides in ((path, path), (path, other)):
        result = ftpatch("diff", *sides)
        assert (result.code, result.out) == (0, "nothing differs\n")


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("name", ["x86_64", "arm64-ops"])
def test_the_same_whatever_packs_them(name: str, kind: str, tmp_path: Path) -> None:
    before, after = _patched(name, tmp_path, "enable", "--to", "my_tracer", "-f", "*_it")
    expected = _rows(before, after)
    sides = []
    for path in (before, after):
        packed = path.with_name(path.name + kind)
        packed.write_bytes(PACKERS[kind](path.read_bytes()))
        sides.append(packed)
    assert _rows(*sides) == expected
    assert _rows(before, sides[1]) == expected, "and one of them"
    assert _rows(sides[0], after) == expected
    assert _rows(sides[1]) == _rows(after)


@every_form
def test_other_bytes(name: str, tmp_path: Path) -> None:
    """In code, in data that is loaded, and in what is not."""
    image = module(FORMS[name])
    before = put(image, tmp_path, "before.ko")
    text = section_of(image, ".text")
    text.data = text.data[:-4] + b"\x90\x90\xeb\xfe"
    info = section_of(image, ".modinfo")
    info.data = info.data.replace(b"GPL", b"MIT")
    rows = _rows(before, put(image, tmp_path, "after.ko"))
    assert Counter(row["kind"] for row in rows) == {"code": 1, "data": 1}
    (data,) = (row for row in rows if row["kind"] == "data")
    assert (data["old"], data["new"]) == (b"GPL".hex(" "), b"MIT".hex(" "))


@every_form
def test_another_build(name: str, tmp_path: Path) -> None:
    """Functions are compared by name: one has gone, one has come, one calls another."""
    form = FORMS[name]
    before = put(module(form, [(n, ".text") for n in "abcdefgh"]), tmp_path, "before.ko")
    functions = [*((n, ".text") for n in "bcdefgh"), ("new_one", ".text")]
    after = put(module(form, functions, name="longer_name"), tmp_path, "after.ko")
    assert ftpatch("enable", "--in-place", after, "--to", "printk", "-f", "c").code == 0
    rows = [row for row in _rows(before, after) if row["kind"] in ("site", "added", "removed")]
    said = {(row["kind"], row["symbol"].split("+")[0]) for row in rows}
    assert said == {("site", "c"), ("added", "new_one"), ("removed", "a")}
