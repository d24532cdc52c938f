# SPDX-License-Identifier: MIT
"""Trees of modules as they are read: which files count, and what of those that are bad."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_as
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module, put
from tests.support.loose_trees import MODULES, contents, plant, untraced

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = 65534


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree")


def test_every_module_once(tree: Path) -> None:
    """In the order of names, files of a folder before its folders; links are not followed."""
    before = contents(tree)
    result = ftpatch("status", "--json", tree)
    assert result.code == 0 and not result.err
    places = [str(Path(row["path"]).relative_to(tree)) for row in result.json]
    assert places == [
        "first.ko",
        "kernel/untraced.ko",
        "kernel/net/second.ko.xz",
        "kernel/net/third.ko.zst",
        "kernel/sound/fourth.ko.gz",
        "kernel/sound/core/fifth.ko",
    ]
    for row in result.json:
        place = str(Path(row["path"]).relative_to(tree))
        if place in MODULES:
            assert row == ftpatch("status", "--json", tree / place).only
        else:
            assert (row["table"], row["sites"], row["arch"]) == (None, 0, "x86_64")
    assert contents(tree) == before


def test_the_sum_of_all(tree: Path) -> None:
    result = ftpatch("status", tree)
    lines = result.out.splitlines()
    assert lines[-2:] == [
        "6 modules, 5 with sites, 0 bad",
        "30 records: 0 null, 0 dropped, 30 sites: 18 call, 12 nop, 0 unexpected",
    ]
    assert len(lines) == 1 + 5 + 2 and "untraced" not in result.out
    assert ftpatch("status", "-q", tree).out == ""


def test_a_tree_and_files_together(tree: Path) -> None:
    result = ftpatch("status", "--json", tree / "first.ko", tree, tree / "kernel")
    assert result.code == 0 and len(result.json) == 1 + 6 + 5


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("a.ko", True),
        ("a-b.c.ko", True),
        ("a.ko.gz", True),
        ("a.ko.xz", True),
        ("a.ko.zst", True),
        (".ko", False),
        ("a.ko.bz2", False),
        ("a.ko.ftpatch", False),
        ("a.ko.xz.ftpatch", False),
        ("a.KO", False),
        ("a.ko~", False),
        ("a.o", False),
        ("ako", False),
    ],
)
def test_names_of_modules(name: str, counts: bool, tmp_path: Path) -> None:
    """As kmod reads them."""
    put(module(FORMS["x86_64"]), tmp_path, "other.ko")
    put(module(FORMS["x86_64"]), tmp_path, name)
    assert len(ftpatch("status", "--json", tmp_path).json) == 1 + counts


@pytest.mark.parametrize("verb", [["status"], ["check"], ["disable", "--in-place"], ["undo"]])
def test_no_modules_at_all(verb: list[str], tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/file.txt").write_text("text")
    (tmp_path / "a/link.ko").symlink_to("file.txt")
    for folder in (tmp_path, tmp_path / "a/b"):
        result = ftpatch(*verb, folder)
        what = "images" if verb[0] in ("status", "check") else "modules"
        assert result.code == 2 and f"{folder}: no {what} in this directory" in result.err
        assert result.err.count("\n") == 1


def test_a_link_to_a_tree(tree: Path) -> None:
    """What the command line names may be a link."""
    link = tree.parent / "link"
    link.symlink_to(tree)
    assert len(ftpatch("status", "--json", link).json) == 6


BAD = {
    "empty.ko": b"",
    "text.ko": b"no module\n",
    "half.ko": module(FORMS["x86_64"]).build()[:700],
    "half.ko.xz": b"\xfd7zXZ\0" + bytes(20),
    "cut.ko.gz": b"\x1f\x8b\x08",
}


@pytest.mark.parametrize("verb", ["status", "check"])
def test_bad_ones_among_good_ones(verb: str, tree: Path) -> None:
    for name, data in BAD.items():
        (tree / "kernel" / name).write_bytes(data)
    result = ftpatch(verb, tree)
    assert result.code == 2 and "internal" not in result.err
    for name in BAD:
        assert result.err.count(f"{tree / 'kernel' / name}: ") == 1
    assert len(result.err.splitlines()) == len(BAD)
    if verb == "status":
        assert "11 modules, 5 with sites, 5 bad" in result.out
    else:
        said = "11 images, 1 without call sites, 5 unreadable, 0 with findings"
        assert said in result.out


def test_findings_of_a_tree(tree: Path) -> None:
    """A line for each, and 1; a file that cannot be read makes it 2."""
    path = tree / "kernel/net/second.ko.xz"
    few = ["-f", "read_it", "--keep-records"]
    assert ftpatch("disable", "--in-place", path, *few).code == 0
    result = ftpatch("check", "--json", tree)
    assert result.code == 1
    assert {(row["path"], row["invariant"]) for row in result.json} == {(str(path), "ftrace_init")}
    (tree / "bad.ko").write_bytes(b"bad")
    assert ftpatch("check", tree).code == 2


def test_what_is_neither_file_nor_folder(tree: Path) -> None:
    os.mkfifo(tree / "pipe.ko")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tree / "socket.ko"))
        assert len(ftpatch("status", "--json", tree).json) == 6


def test_folders_within_each_other(tmp_path: Path) -> None:
    """Deeper than Python may call itself."""
    folder = tmp_path
    for _ in range(sys.getrecursionlimit() + 100):
        folder = folder / "d"
        folder.mkdir()
    put(module(FORMS["x86_64"]), folder)
    try:
        assert ftpatch("status", "--json", tmp_path).only["sites"] == 6
    finally:  # shutil.rmtree() would call itself
        subprocess.run(["rm", "-r", str(tmp_path / "d")], check=True)


@pytest.mark.parametrize("name", [b"caf\xe9.ko", b"a\x1b[31mb.ko", b"a [red]b.ko", b"a b.ko"])
def test_names_that_are_no_text(name: bytes, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(name)).write_bytes(module(FORMS["x86_64"]).build())
    result = ftpatch("status", tmp_path)
    assert result.code == 0 and result.out.replace("\n", "").isprintable()
    assert ftpatch("status", "--json", tmp_path).only["sites"] == 6
    assert ftpatch("disable", "--in-place", tmp_path).code == 0
    (tmp_path / os.fsdecode(name)).write_bytes(b"bad")
    result = ftpatch("status", tmp_path)
    assert result.code == 2 and result.err.replace("\n", "").isprintable()


@root_only
def test_what_may_not_be_read(tmp_path: Path) -> None:
    """A folder and two files, one of which may be an image; the others are told of."""
    import tempfile

    ftpatch("status", tmp_path)  # all that a command imports must be loaded already
    with tempfile.TemporaryDirectory() as name:
        tree = plant(Path(name, "tree"))
        Path(name).chmod(0o755)
        (tree / "kernel/sound").chmod(0o700)
        (tree / "first.ko").chmod(0o600)
        result = ftpatch_as(NOBODY, "status", "--json", tree)
        assert result.code == 2 and len(result.json) == 3
        errors = sorted(result.err.splitlines())
        assert [
            f"ftpatch: {tree / place}: cannot read: Permission denied"
            for place in ("first.ko", "kernel/sound", "modules.dep")
        ] == errors


@pytest.mark.parametrize("verb", ["list", "diff", "extract"])
def test_verbs_for_one_image(verb: str, tree: Path) -> None:
    result = ftpatch(verb, tree)
    assert result.code == 2 and result.err.count("\n") == 1
    assert result.err == f"ftpatch: {tree}: a folder; name a file in it\n"


def test_a_tree_without_sites(tmp_path: Path) -> None:
    (tmp_path / "a.ko").write_bytes(untraced())
    result = ftpatch("status", tmp_path)
    assert result.code == 0
    assert result.out.startswith("1 module, 0 with sites, 0 bad\n")
    assert ftpatch("check", tmp_path).code == 1, "nothing was checked"
    assert ftpatch("check", tmp_path / "a.ko").code == 0, "a module may have none"
    result = ftpatch("disable", "--in-place", tmp_path)
    assert result.code == 0 and "wrote 0 modules in place" in result.out
