# SPDX-License-Identifier: MIT
"""Trees that cannot be written where they should, or not all of them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, section_of
from tests.support.loose_trees import MODULES, contents, forest, plant

CALLING = [place for place, form in MODULES.items() if form in ("x86_64", "i386")]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree")


def _refused(result: Result, words: str) -> None:
    assert result.code == 2 and not result.out, result
    assert words in result.err and result.err.count("\n") == 1
    assert "internal" not in result.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "a tree needs -o DIR or --in-place"),
        (["--in-place", "-o", "output"], "--in-place and -o are mutually exclusive"),
        (["-o", "tree"], "output and tree overlap"),
        (["-o", "tree/"], "output and tree overlap"),
        (["-o", "tree/inside"], "output and tree overlap"),
        (["-o", "tree/kernel/net"], "output and tree overlap"),
        (["-o", "tree/new/folder", "--force"], "output and tree overlap"),
        (["-o", ".", "--force"], "output and tree overlap"),
        (["-o", "tree/../tree/x"], "output and tree overlap"),
        (["-o", "into_tree/x"], "output and tree overlap"),
        (["-o", "file"], "the output of a tree must be a directory"),
        (["-o", "into_tree"], "the output of a tree must be a directory"),
        (["-o", "dangling"], "the output of a tree must be a directory"),
        (["-o", "full"], "the output is not empty; use --force to overwrite files in it"),
    ],
)
def test_where_the_output_cannot_be(
    options: list[str], words: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.parent)
    Path("file").write_text("text")
    Path("into_tree").symlink_to("tree/kernel")
    Path("dangling").symlink_to("nothing")
    Path("full/x").mkdir(parents=True)
    before = contents(tree.parent)
    _refused(ftpatch("disable", "tree", *options), words)
    assert contents(tree.parent) == before


def test_overwriting_an_older_output(tree: Path) -> None:
    """With --force; what the tree does not have stays."""
    output = tree.parent / "output"
    assert ftpatch("disable", tree, "-o", output).code == 0
    disabled = contents(output)
    (output / "more").write_text("more")
    (output / "modules.dep").write_text("other")
    result = ftpatch("disable", tree, "-o", output, "--force", "-f", "open_it")
    assert result.code == 0, result
    after = contents(output)
    assert after.pop("more") == ("file", b"more")
    assert after["modules.dep"] == disabled["modules.dep"]
    assert {place for place in after if after[place] != disabled[place]} == set(CALLING)


def _linked_folder(output: Path) -> None:
    (output / "kernel").symlink_to("../elsewhere")


def _linked_module(output: Path) -> None:
    (output / "first.ko").symlink_to("../elsewhere/file")


def _folder_for_file(output: Path) -> None:
    (output / "modules.dep").mkdir()


def _folder_for_module(output: Path) -> None:
    (output / "first.ko").mkdir()


def _file_for_folder(output: Path) -> None:
    (output / "kernel").write_text("text")


def _folder_for_link(output: Path) -> None:
    (output / "build").mkdir()


@pytest.mark.parametrize(
    "obstacle",
    [
        _linked_folder,
        _linked_module,
        _folder_for_file,
        _folder_for_module,
        _file_for_folder,
        _folder_for_link,
    ],
)
def test_what_is_in_the_way(obstacle: Callable[[Path], None], tree: Path) -> None:
    """Nothing is written to another place than its own."""
    output, elsewhere = tree.parent / "output", tree.parent / "elsewhere"
    output.mkdir()
    elsewhere.mkdir()
    (elsewhere / "file").write_text("text")
    obstacle(output)
    before = contents(tree)
    result = ftpatch("disable", tree, "-o", output, "--force")
    assert result.code == 2 and "internal" not in result.err and "None" not in result.err
    assert contents(elsewhere) == {"file": ("file", b"text")} and contents(tree) == before
    assert not [path for path in output.rglob("*") if path.parent.name == "modules.dep"]


def test_what_is_neither_file_nor_link(tree: Path) -> None:
    """It is left out of the output, and said so; in place it stays."""
    os.mkfifo(tree / "pipe.ko")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tree / "socket"))
    output = tree.parent / "output"
    result = ftpatch("disable", tree, "-o", output)
    assert result.code == 0
    assert sorted(result.err.splitlines()) == [
        f"ftpatch: {tree / name}: skipped: neither a file nor a link"
        for name in ("pipe.ko", "socket")
    ]
    assert not (output / "pipe.ko").exists() and not (output / "socket").exists()
    assert ftpatch("disable", tree, "--in-place").err == ""
    assert stat.S_ISFIFO((tree / "pipe.ko").lstat().st_mode)


def _damage(path: Path) -> None:
    image = module(FORMS["x86_64"])
    text = section_of(image, ".text")
    text.data = b"\x0b\x0b" + text.data[2:]
    path.write_bytes(image.build())


def test_a_refused_site_of_one(tree: Path) -> None:
    """That module is not written, the others are, and the exit code tells."""
    _damage(tree / "first.ko")
    before = contents(tree)
    result = ftpatch("disable", tree, "--in-place")
    assert result.code == 1
    assert f"{tree / 'first.ko'}: 1 site refused; not written" in result.err
    assert result.err.count("ftrace bug") == 1 and "open_it+0x0" in result.err
    assert "6 modules, 5 with sites, 0 bad: 30 sites, 30 selected: 12 changed" in result.out
    after = contents(tree)
    assert {place for place in after if after[place] != before[place]} == {*CALLING} - {"first.ko"}
    (row,) = (r for r in ftpatch("disable", tree, "--in-place", "--json").json if r["failed"])
    assert row["path"] == str(tree / "first.ko") and len(row["failed"]) == 1


def test_a_refused_site_in_a_new_tree(tree: Path) -> None:
    _damage(tree / "first.ko")
    output = tree.parent / "output"
    assert ftpatch("disable", tree, "-o", output).code == 1
    assert not (output / "first.ko").exists(), "half done would look like done"
    assert contents(output).keys() == contents(tree).keys() - {"first.ko"}


def test_bad_files_among_good_ones(tree: Path) -> None:
    """Worse than a refused site: 2."""
    _damage(tree / "first.ko")
    (tree / "bad.ko").write_bytes(b"bad")
    (tree / "bad.ko.xz").write_bytes(b"\xfd7zXZ\0bad")
    output = tree.parent / "output"
    result = ftpatch("disable", tree, "-o", output)
    assert result.code == 2
    assert result.err.count(f"{tree / 'bad.ko'}: ") == 1 == result.err.count("bad.ko.xz: ")
    assert "8 modules, 5 with sites, 2 bad" in result.out
    assert "wrote 2 modules into" in result.out


def test_many_errors_of_one_kind(tmp_path: Path) -> None:
    """Ten are told, the others counted; what hinders every module is said once."""
    tree = forest(tmp_path / "tree", 30)
    result = ftpatch("enable", tree, "--in-place")
    assert result.code == 2 and not result.out and result.err.count("\n") == 1
    assert "this image has no ftrace_caller (and 29 modules more)" in result.err
    for path in sorted(tree.rglob("*.ko"))[1:]:
        path.write_bytes(b"no module")
    result = ftpatch("enable", tree, "--in-place", "--to", "my_tracer")
    assert result.code == 2
    lines = result.err.splitlines()
    assert len(lines) == 11 and all("not an ELF file" in text for text in lines)
    assert lines[-1].startswith("ftpatch: ... and 19 more")
    assert "30 modules, 1 with sites, 29 bad" in result.out
