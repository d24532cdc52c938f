# SPDX-License-Identifier: MIT
"""JSON of every verb: keys, types, and addresses as strings; one object a line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import ftpatch
from tests.support.samples import sample

Copied = Callable[[str], Path]
HEX = re.compile(r"0x[0-9a-f]+")
BYTES = re.compile(r"([0-9a-f]{2}(:[0-9a-f]{2})*)?")


def _shape(row: dict[str, Any]) -> dict[str, str]:
    """The type of each value in words."""

    def kind(value: object) -> str:
        if isinstance(value, str) and HEX.fullmatch(value):
            return "address"
        return type(value).__name__

    return {key: kind(value) for key, value in row.items()}


STATUS = {
    "path": "str",
    "container": "str",
    "arch": "str",
    "table": "str",
    "records": "int",
    "null": "int",
    "dropped": "int",
    "sites": "int",
    "lost": "int",
    "states": "dict",
    "targets": "dict",
}
SITE = {
    "ip": "address",
    "offset": "int",
    "symbol": "str",
    "symbol_offset": "int",
    "state": "str",
    "target": "str",
    "dropped": "bool",
}
UPDATE = {
    "output": "str",
    "changed": "int",
    "unchanged": "int",
    "dropped": "int",
    "restored": "int",
    "seconds": "float",
    "failed": "list",
}
FAILED = {
    "ip": "address",
    "symbol": "str",
    "reason": "str",
    "actual": "str",
    "expected": "str",
}
FINDING = {"path": "str", "invariant": "str", "ip": "address", "symbol": "str", "message": "str"}
DIFFERENCE = {
    "kind": "str",
    "address": "address",
    "offset": "int",
    "symbol": "str",
    "old": "str",
    "new": "str",
}


def test_status() -> None:
    names = ["pad", "vmlinux-x86_64", "vmlinux-arm64-callops", "libmfentry.so"]
    rows = ftpatch("status", "--json", *(sample(name).path for name in names)).json
    assert len(rows) == len(names)
    for row, name in zip(rows, names, strict=True):
        assert _shape(row) == STATUS and list(row) == list(STATUS)
        assert list(row["states"]) == ["nop", "call", "unexpected"]
        assert {type(count) for count in row["states"].values()} == {int}
        assert row["path"] == str(sample(name).path)


def test_status_goes_on_behind_a_bad_image(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"no ELF")
    result = ftpatch("status", "--json", sample("pad").path, bad, sample("fentry").path)
    assert result.code == 2 and len(result.json) == 2 and result.err.count("\n") == 1


def test_format_is_json_by_another_name() -> None:
    path = sample("pad").path
    assert ftpatch("list", "--json", path) == ftpatch("list", "--format", "json", path)
    assert ftpatch("list", "--format", "text", path) == ftpatch("list", path)


@pytest.mark.parametrize("name", ["pad", "fentry", "vmlinux-arm64", "pad-glibc-static"])
def test_list(name: str) -> None:
    rows = ftpatch("list", "--json", sample(name).path).json
    assert len(rows) == sample(name).expected["sites"]
    for row in rows:
        assert _shape(row) == SITE and list(row) == list(SITE)
        assert row["state"] in ("nop", "call", "unexpected")
        assert (row["target"] != "") == (row["state"] == "call")


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_updates(verb: str, copy_of: Copied) -> None:
    path = copy_of("vmlinux-x86_64")
    row = ftpatch(verb, "--json", path).only
    assert _shape(row) == UPDATE and list(row) == list(UPDATE)
    assert row["output"] == f"{path}.ftpatch"
    assert (row["changed"], row["unchanged"], row["dropped"]) == (40, 0, 40)
    assert (row["restored"], row["failed"]) == (0, [])
    dry = ftpatch(verb, "--json", path, "--dry-run").only
    assert dry | {"seconds": 0} == row | {"seconds": 0, "output": None}


def test_a_refused_update(copy_of: Copied) -> None:
    path = copy_of("vmlinux-x86_64")
    data = bytearray(path.read_bytes())
    site = ftpatch("list", "--json", path).json[5]
    data[site["offset"] + 4] ^= 1
    path.write_bytes(data)
    result = ftpatch("enable", "--json", path)
    assert result.code == 1 and result.err == ""
    row = result.only
    assert _shape(row) == UPDATE | {"output": "NoneType"}
    assert (row["changed"], row["dropped"], row["unchanged"]) == (0, 0, 0)
    (failed,) = row["failed"]
    assert _shape(failed) == FAILED and list(failed) == list(FAILED)
    assert failed["ip"] == site["ip"] and failed["reason"].startswith("EINVAL: ")
    assert failed["symbol"].startswith(f"{site['symbol']}+{site['symbol_offset']:#x}/0x")
    assert BYTES.fullmatch(failed["actual"]) and BYTES.fullmatch(failed["expected"])
    assert failed["actual"] == data[site["offset"] : site["offset"] + 5].hex(":")
    assert failed["expected"] == sample(path.name).data[site["offset"] :][:5].hex(":")


def test_check(copy_of: Copied) -> None:
    path = copy_of("vmlinux-x86_64")
    keep = ["-f", "vfs_read", "--keep-records"]
    assert ftpatch("disable", "--in-place", path, *keep).code == 0
    result = ftpatch("check", "--json", path)
    row = result.only
    assert result.code == 1
    shape = FINDING | {"verdict": "str", "bug": "str"}
    assert _shape(row) == shape and list(row) == list(shape)
    assert row["verdict"] == "ftrace-off"
    assert row["bug"].startswith("------------[ ftrace bug ]------------\n")


def test_diff_and_undo(copy_of: Copied) -> None:
    path = copy_of("vmlinux-arm64")
    size = path.stat().st_size
    assert ftpatch("enable", "--in-place", path, "-f", "vfs_*").code == 0
    result = ftpatch("diff", "--json", path)
    assert result.code == 1 and result.err == ""
    kinds = set()
    for row in result.json:
        assert list(row) == list(DIFFERENCE)
        optional = {"address": "NoneType"} if row["address"] is None else {}
        assert _shape(row) == DIFFERENCE | optional
        kinds.add(row["kind"])
    assert {"site", "record"} <= kinds
    groups = ftpatch("diff", "--json", "--stat", path).json
    assert {tuple(row) for row in groups} == {("kind", "old", "new", "count")}
    assert sum(g["count"] for g in groups) == len(result.json)
    undone = ftpatch("undo", "--json", path).only
    assert list(undone) == ["output", "changes", "length", "identical"]
    assert undone["output"] == str(path) and undone["length"] == size
    assert isinstance(undone["changes"], int) and undone["changes"] > 0


def test_json_is_ascii_and_one_line_each(tmp_path: Path) -> None:
    """Names are data: escaped by JSON, not by us, so that they come back as they were."""
    from tests.support.elf_writer import Symbol
    from tests.support.images import pad_program

    image = pad_program()
    names = ["line\nbreak", "esc\x1b[31m", "naïve", "[red]x[/red]", "tab\t"]
    for i, name in enumerate(names):
        old = image.symbols[i + 1]
        image.symbols[i + 1] = Symbol(name, old.value, old.size)
    path = tmp_path / "image"
    path.write_bytes(image.build())
    result = ftpatch("list", "--json", path)
    assert result.out.isascii() and result.out.count("\n") == len(result.json) == 6
    assert [row["symbol"] for row in result.json][:5] == names
