# SPDX-License-Identifier: MIT
"""Trees of other users, and who may do what with the output."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from tests.support.command import ftpatch, ftpatch_as
from tests.support.loose_trees import contents, plant

NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "tree")


@root_only
def test_a_plain_file_that_cannot_be_read(tmp_path: Path) -> None:
    """It is told like a module that cannot be read, and the others are done."""
    ftpatch("disable", plant(tmp_path / "warm"), "--in-place")
    with tempfile.TemporaryDirectory() as name:
        tree, own = plant(Path(name, "tree")), Path(name, "own")
        Path(name).chmod(0o755)
        (tree / "modules.dep").chmod(0o600)
        own.mkdir()
        os.chown(own, NOBODY, NOBODY)
        result = ftpatch_as(NOBODY, "disable", tree, "-o", own / "out")
        assert result.code == 2 and "modules.dep" in result.err
        assert contents(own / "out").keys() == contents(tree).keys() - {"modules.dep"}


@root_only
def test_a_tree_of_another_user(tmp_path: Path) -> None:
    """What cannot be written is told; what cannot be read as well."""
    ftpatch("disable", plant(tmp_path / "warm"), "--in-place")
    with tempfile.TemporaryDirectory() as name:
        tree = plant(Path(name, "tree"))
        Path(name).chmod(0o755)
        before = contents(tree)
        result = ftpatch_as(NOBODY, "disable", tree, "--in-place")
        assert result.code == 2 and "Permission denied" in result.err
        result = ftpatch_as(NOBODY, "disable", tree, "-o", Path(name, "out"))
        assert result.code == 2 and result.err.count("\n") == 1
        assert "Permission denied" in result.err
        assert contents(tree) == before and not Path(name, "out").exists()
        Path(name, "own").mkdir()
        os.chown(Path(name, "own"), NOBODY, NOBODY)
        (tree / "kernel/net").chmod(0o700)
        (tree / "modules.dep").chmod(0o644)
        result = ftpatch_as(NOBODY, "disable", tree, "-o", Path(name, "own/out"))
        assert result.code == 2
        assert f"ftpatch: {tree / 'kernel/net'}: cannot read: Permission denied\n" in result.err
        assert Path(name, "own/out/first.ko").read_bytes() != (tree / "first.ko").read_bytes()


def test_nothing_in_the_output_is_setuid(tree: Path) -> None:
    """Not even what is copied as it is: the owner is another one."""
    (tree / "modules.dep").chmod(0o4755)
    (tree / "kernel/untraced.ko").chmod(0o6755)
    output = tree.parent / "output"
    ftpatch("disable", tree, "-o", output)
    for path in output.rglob("*"):
        assert not path.lstat().st_mode & 0o6000 or path.is_symlink(), path


def test_folders_keep_their_modes(tree: Path) -> None:
    (tree / "kernel").chmod(0o700)
    (tree / "empty").chmod(0o3775)
    output = tree.parent / "output"
    assert ftpatch("disable", tree, "-o", output).code == 0
    assert stat.S_IMODE((output / "kernel").stat().st_mode) == 0o700
    assert stat.S_IMODE((output / "empty").stat().st_mode) == 0o775, "no set-group-ID"
