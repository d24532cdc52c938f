# SPDX-License-Identifier: MIT
"""A tracer laid into a kernel module. GNU ld places its sections as a kernel's loader might, and
Unicorn runs what came out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.elf_writer import Section
from tests.support.loose_forms import FORMS
from tests.support.loose_images import NAMES, PLACES, Loose, module, put, signed
from tests.support.loose_reader import read_loose
from tests.support.placed_modules import KERNEL, STACK, STARTS, Placed

TRACED = ("x86_64", "arm64", "arm64-ops", "riscv64", "riscv64-ops")
CODE = ".text.ftpatch"
every_traced = pytest.mark.parametrize("name", TRACED)


def _enabled(name: str, folder: Path, *words: str) -> Path:
    path = put(module(FORMS[name]), folder)
    result = ftpatch("enable", "--in-place", path, "--tracer", "boot", *words)
    assert result.code == 0, result.err
    return path


def _read(path: Path, sent: bytes, folder: Path) -> list[dict[str, Any]]:
    stream = folder / "stream"
    stream.write_bytes(sent)
    rows = ftpatch("report", stream, "--image", path, "--json").json
    return [row for row in rows if row["event"] == "entry"]


@every_traced
@pytest.mark.parametrize("words", [(), ("--time",), ("--max", "100")])
def test_events_tell_functions_wherever_sections_are(
    name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    """Each function is called by open_it, which is in .text: a return to that is known to go there
    only from .text."""
    path = _enabled(name, tmp_path, *words)
    loaded = Placed(path, FORMS[name], tmp_path)
    order = ["open_it", "set_up", "once", "read_it", "close_it", "write_it"]
    parent = STARTS[".text"] + FORMS[name].before + len(FORMS[name].enabled) + 4
    for number, function in enumerate(order):
        loaded.call(function, STACK + 0x8000 - 64 * number, parent)
    rows = _read(path, loaded.sent, tmp_path)
    assert [row["function"] for row in rows] == order
    depths = dict(zip(order, (row["depth"] for row in rows), strict=True))
    assert depths["open_it"] == 0 and depths["set_up"] == 1
    assert depths["read_it"] == depths["close_it"] == depths["write_it"] == 1


@every_traced
def test_it_stops(name: str, tmp_path: Path) -> None:
    path = _enabled(name, tmp_path, "--max", "2")
    loaded = Placed(path, FORMS[name], tmp_path)
    for function in ("set_up", "open_it", "set_up", "open_it"):
        loaded.call(function, STACK + 0x8000, KERNEL)
    assert [row["function"] for row in _read(path, loaded.sent, tmp_path)] == ["set_up", "open_it"]


@every_traced
def test_a_function_stops_all_copies(name: str, tmp_path: Path) -> None:
    path = _enabled(name, tmp_path, "-f", "set_up", "--until", "read_it")
    loaded = Placed(path, FORMS[name], tmp_path)
    for function in ("set_up", "read_it", "set_up", "read_it"):
        loaded.call(function, STACK + 0x8000, KERNEL)
    assert [row["function"] for row in _read(path, loaded.sent, tmp_path)] == ["set_up", "read_it"]


@every_traced
def test_few_sites_and_what_is_said_of_them(name: str, tmp_path: Path) -> None:
    form, path = FORMS[name], _enabled(name, tmp_path, "-f", "read_it", "-f", "once")
    held = read_loose(path)
    assert held.calls(form, "ftpatch_boot.text", PLACES["read_it"])
    assert held.calls(form, "ftpatch_boot.text.unlikely", PLACES["once"])
    assert held.undefined() == read_loose(module(form).build()).undefined()
    assert len(held.records(form.table)) == len(NAMES) - 2
    row = ftpatch("status", "--json", path).only
    assert (row["states"]["unexpected"], row["dropped"]) == (0, 2)
    assert row["targets"]["ftpatch_boot.text"] == row["targets"]["ftpatch_boot.text.unlikely"] == 1
    said = ftpatch("check", path)
    assert said.code == 0 and "loads and ftrace works" in said.out
    told = {
        row["symbol"] for row in ftpatch("diff", "--json", path).json if row["kind"] == "header"
    }
    assert {CODE, ".rela" + CODE, ".symtab", ".strtab", ".shstrtab", form.table} <= told
    listed = {row["symbol"]: row for row in ftpatch("list", "--json", path).json}
    assert listed["once"]["target"] == "ftpatch_boot.text.unlikely"


@every_traced
def test_undo_gives_back_the_file(name: str, tmp_path: Path) -> None:
    data = signed(module(FORMS[name]).build())
    path = tmp_path / "demo.ko"
    path.write_bytes(data)
    words = ("--in-place", "--strip-signature")
    assert ftpatch("enable", *words, path, "--tracer", "boot").code == 0
    made = path.read_bytes()
    again = ftpatch("enable", *words, path, "--tracer", "boot")
    assert again.code == 1 and "already patched; run `ftpatch undo` first" in again.err
    for command in (("disable", "-f", "open_it"), ("enable", "--to", "other", "-f", "once")):
        assert ftpatch(*command, "--in-place", path).code == 0
        assert ftpatch("check", path).code == 0
    held = read_loose(path)
    assert held.calls(FORMS[name], "other", PLACES["once"])
    assert held.calls(FORMS[name], "ftpatch_boot.text", PLACES["read_it"])
    for expected in (None, made, data):
        assert ftpatch("undo", path).code == 0
        assert expected is None or path.read_bytes() == expected


@pytest.mark.parametrize("name", ["x86_64", "arm64"])
def test_compressed(name: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    subprocess.run(["xz", "--check=crc32", path], check=True)
    packed = tmp_path / "demo.ko.xz"
    data = packed.read_bytes()
    assert ftpatch("enable", "--in-place", packed, "--tracer", "boot").code == 0
    assert ftpatch("check", packed).code == 0
    assert ftpatch("undo", packed).code == 0
    assert packed.read_bytes() == data


def test_a_tree_leaves_other_modules_alone(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    put(module(FORMS["x86_64"]), tree, "one.ko")
    other = put(module(FORMS["arm64"], [("other", ".text")]), tree, "two.ko")
    assert ftpatch("enable", tree, "--tracer", "boot", "-f", "read_it", "-o", out).code == 0
    assert CODE in read_loose(out / "one.ko").contents
    assert (out / "two.ko").read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("i386", (), "no boot tracer for i386 modules; use --to SYMBOL"),
        ("riscv64", ("--sink", "memory"), "unsupported sink memory for riscv64"),
        ("x86_64", ("--sink", "memory"), "unsupported sink memory for x86_64"),
        ("arm64", ("--sink", "debugcon"), "unsupported sink debugcon for arm64"),
        ("x86_64", ("--until", "nobody"), "--until nobody: no such function"),
        ("x86_64", ("-f", "nobody"), "'nobody' matches no site"),
    ],
)
def test_refusals(name: str, words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    path = put(module(FORMS[name]), tmp_path)
    result = ftpatch("enable", path, "--tracer", "boot", *words)
    assert result.code == 2 and said in result.err and result.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


def test_a_module_does_not_boot(tmp_path: Path) -> None:
    result = ftpatch("boot", put(module(FORMS["x86_64"]), tmp_path))
    assert result.code == 125 and "a module does not boot; use a vmlinux" in result.err


def _malformed() -> Iterator[tuple[str, Loose, str]]:
    yield "object", module(FORMS["x86_64"], name=""), "is for kernels and modules"
    image = module(FORMS["x86_64"])
    image.sections.append(Section(CODE, bytes(16), flags=6))
    yield "taken", image, f"already has a section {CODE}"
    image = module(FORMS["x86_64"])
    image.edits[".strtab"] = {"sh_type": 1}
    yield "strings", image, ".strtab is not a string table"


@pytest.mark.parametrize(("name", "image", "said"), list(_malformed()), ids=lambda v: str(v)[:9])
def test_files_that_have_no_room(name: str, image: Loose, said: str, tmp_path: Path) -> None:
    path = put(image, tmp_path)
    result = ftpatch("enable", path, "--tracer", "boot")
    assert result.code in (1, 2) and said in result.err and result.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["demo.ko"]


def test_a_file_whose_sections_names_are_no_table(tmp_path: Path) -> None:
    data = bytearray(module(FORMS["x86_64"]).build())
    table = int.from_bytes(data[40:48], "little") + 64 * int.from_bytes(data[62:64], "little")
    data[table + 4] = 1  # SHT_PROGBITS
    path = tmp_path / "demo.ko"
    path.write_bytes(data)
    result = ftpatch("enable", path, "--tracer", "boot")
    assert result.code == 2 and result.err.endswith("no complete table of section names\n")
