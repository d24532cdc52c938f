# SPDX-License-Identifier: MIT
"""``check --expected``: records that a build lost are found, whatever the image is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.broken import put_words, words_of
from tests.support.command import ftpatch
from tests.support.images import fentry_kernel, pad_program, symbols_at
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module
from tests.support.samples import SAMPLES, Sample, sample

ENTRY = 8
"""Bytes from a function's start to the ip of a site at its entry, at most."""
PADS = "__patchable_function_entries"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _expect(*paths: Path) -> list[dict[str, str]]:
    """The lines of a list that was just written."""
    result = ftpatch("check", "--write-expected", "list", *paths)
    assert result.code == 0, result.err
    lines = Path("list").read_text().splitlines()
    rows = [line for line in lines if not line.startswith("#")]
    assert lines[0].startswith("#") and lines[len(lines) - len(rows) :] == rows
    return [json.loads(line) for line in rows]


@pytest.mark.parametrize(
    "source", [s for s in SAMPLES if s.expected["table"]], ids=lambda s: s.name
)
def test_every_sample_has_what_it_has(source: Sample) -> None:
    rows = _expect(source.path)
    assert {row["image"] for row in rows} <= {source.name}
    live = ftpatch("list", "--json", source.path).json
    assert len(live) == source.expected["sites"]
    if source.kernel:  # what is left of overridden weak functions has no name
        live = [row for row in live if row["symbol_offset"] <= ENTRY]
    assert len(rows) == len(live)
    names = {row["symbol"] or row["ip"] for row in live}
    assert {row["function"] for row in rows} == names
    assert ftpatch("check", "--expected", "list", source.path).code == 0


@pytest.mark.parametrize("kind", ["kernel", "program"])
def test_a_nulled_record_fails_a_gate(kind: str) -> None:
    image = fentry_kernel() if kind == "kernel" else pad_program()
    name = ".init.data" if kind == "kernel" else PADS
    path = Path("image")
    path.write_bytes(image.build())
    before = _expect(path)
    words = words_of(image, name)
    at, gone = words[1], "vfs_write"
    assert {"image": "image", "function": gone} in before
    put_words(image, [words[0], 0, *words[2:]], name)
    path.write_bytes(image.build())
    result = ftpatch("check", "--json", "--expected", "list", path)
    assert result.code == 1
    row = next(row for row in result.json if row["invariant"] == "record-expected")
    assert (int(row["ip"], 16), row["symbol"]) == (at, f"{gone}+0x0")
    assert sum(row["invariant"] == "record-expected" for row in result.json) == 1
    said = ftpatch("check", "--format", "github", "--expected", "list", path).out
    assert f"title=ftpatch record-expected::record-expected: {at:#x} {gone}+0x0" in said
    suites = ET.fromstring(ftpatch("check", "--format", "junit", "--expected", "list", path).out)
    case = suites.find(".//testcase[@name='record-expected']")
    assert case is not None and case.find("failure") is not None
    # What is lost today may be known, as any finding.
    both = ("--expected", "list", path)
    assert ftpatch("check", "--write-baseline", "known", *both).code == 0
    assert ftpatch("check", "--baseline", "known", *both).code == 0


def test_what_ftpatch_dropped_has_no_record() -> None:
    path, out = sample("vmlinux-x86_64").path, Path("vmlinux-x86_64")
    _expect(path)
    assert ftpatch("disable", path, "-o", out, "-f", "vfs_read").code == 0
    rows = ftpatch("check", "--json", "--expected", "list", out).json
    found = [(r["invariant"], r["symbol"]) for r in rows if r["invariant"]]
    assert found == [("record-expected", "vfs_read+0x0")]
    assert ftpatch("undo", out).code == 0
    assert ftpatch("check", "--expected", "list", out).code == 0


def test_new_functions_are_told_and_do_not_fail() -> None:
    path = sample("pad").path
    rows = _expect(path)
    Path("list").write_text("".join(json.dumps(row) + "\n" for row in rows[3:]))
    result = ftpatch("check", "--expected", "list", path)
    said = "list: pad: 3 with a record not listed\n"
    assert result.code == 0 and said in result.out
    told = ftpatch("check", "-v", "--expected", "list", path).out
    assert "not listed: " + ", ".join(row["function"] for row in rows[:3]) in told


def test_a_function_that_is_no_more() -> None:
    line = json.dumps({"image": "pad", "function": "no_such"})
    Path("list").write_text(line + "\n")
    result = ftpatch("check", "--expected", "list", sample("pad").path)
    assert result.code == 1
    assert (
        "record-expected: no_such: list expects a record, but no such function exists" in result.out
    )


def test_another_name_of_the_function_will_do() -> None:
    image, path = pad_program(), Path("image")
    at = symbols_at(0x40_1000)["vfs_write"]
    image.symbols.append(type(image.symbols[-1])("a_write", at, 8))
    path.write_bytes(image.build())
    for name in ("vfs_write", "a_write"):
        Path("list").write_text(json.dumps({"image": "image", "function": name}) + "\n")
        assert ftpatch("check", "--expected", "list", path).code == 0


def test_one_file_for_several_images_and_a_tree() -> None:
    pad, kernel = sample("pad").path, sample("vmlinux-arm64").path
    rows = _expect(pad, kernel)
    assert {row["image"] for row in rows} == {"pad", "vmlinux-arm64"}
    assert ftpatch("check", "--expected", "list", kernel, pad).code == 0
    result = ftpatch("check", "--expected", "list", pad)
    assert result.code == 0 and "list: vmlinux-arm64: not checked; " in result.out
    tree = Path("tree/kernel")
    tree.mkdir(parents=True)
    (tree / "one.ko").write_bytes(module(FORMS["x86_64"]).build())
    rows = _expect(Path("tree"))
    assert rows and {row["image"] for row in rows} == {"kernel/one.ko"}
    assert ftpatch("check", "--expected", "list", Path("tree")).code == 0
    rows.append({"image": "kernel/one.ko", "function": "gone"})
    Path("list").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ftpatch("check", "--expected", "list", Path("tree")).code == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: not a JSON object"),
        ('{"image": "x"}', "line 1: expected an object with image, function"),
        ('# ok\n{"image": "x", "function": 3}', "line 2: a value is not a string"),
    ],
)
def test_a_file_that_is_none(text: str, said: str) -> None:
    Path("list").write_text(text)
    result = ftpatch("check", "--expected", "list", sample("pad").path)
    assert (result.code, result.err) == (2, f"ftpatch: list: {said}\n")


def test_what_is_in_the_way() -> None:
    pad = sample("pad").path
    assert ftpatch("check", "--expected", "missing", pad).code == 2
    os.mkfifo("pipe")
    result = ftpatch("check", "--expected", "pipe", pad)
    assert result.code == 2 and "not a regular file" in result.err
    Path("notes").write_text("mine\n")
    result = ftpatch("check", "--write-expected", "notes", pad)
    assert result.code == 2 and "not a list of expected functions" in result.err
    assert Path("notes").read_text() == "mine\n"
    result = ftpatch("check", "--write-expected", "list", "--expected", "list", pad)
    assert result.code == 2
    Path("broken").write_bytes(b"\x7fELF")
    result = ftpatch("check", "--write-expected", "list", pad, Path("broken"))
    assert result.code == 2 and not Path("list").exists() and "not written" in result.err
    # It may be written again, and over the old one.
    assert _expect(pad) == _expect(pad)


def test_a_baseline_does_not_replace_a_list() -> None:
    path = sample("pad").path
    _expect(path)
    held = Path("list").read_bytes()
    result = ftpatch("check", "--write-baseline", "list", path)
    assert result.code == 2 and "list: not a baseline; use another name" in result.err
    assert Path("list").read_bytes() == held
