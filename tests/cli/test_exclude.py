# SPDX-License-Identifier: MIT
"""``--exclude``: what it leaves out of a directory, and what is said where that is nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.samples import BUILT

ALL = {"a/b/one.ko", "a/two.ko", "b/three", "four"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ALL:
        path = Path("tree", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(BUILT / "fentry", path)


def _looked_at(*words: str) -> set[str]:
    told = ftpatch("check", "tree", *words, "--format", "junit")
    status = ftpatch("status", "--json", "tree", *words)
    rows = {os.path.relpath(row["path"], "tree") for row in status.json}
    assert rows == {name for name in ALL if f'<testsuite name="tree/{name}"' in told.out}
    assert (told.code, status.code) == (0, 0), told.err + status.err
    return rows


@pytest.mark.parametrize(
    ("globs", "left_out"),
    [
        (["four"], {"four"}),
        (["*.ko"], {"a/b/one.ko", "a/two.ko"}),
        (["one.ko"], {"a/b/one.ko"}),
        (["a/*"], {"a/b/one.ko", "a/two.ko"}),
        (["a/"], {"a/b/one.ko", "a/two.ko"}),
        (["a/b"], {"a/b/one.ko"}),
        (["b"], {"a/b/one.ko", "b/three"}),
        (["t[hw]*"], {"a/two.ko", "b/three"}),
        (["./four"], {"four"}),
        ([".//a/./b/"], {"a/b/one.ko"}),
        (["four", "a"], {"four", "a/b/one.ko", "a/two.ko"}),
    ],
)
def test_by_name_and_by_path(globs: list[str], left_out: set[str]) -> None:
    assert _looked_at(*(f"--exclude={text}" for text in globs)) == ALL - left_out


@pytest.mark.parametrize("verb", ["check", "status"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tree", "--exclude", "fuor"], "--exclude 'fuor' matches no image; did you mean four?"),
        (["tree", "--exclude", "a", "--exclude", "Two"], "--exclude 'Two' matches no image; "),
        (["tree", "--exclude", "tree/four"], "--exclude 'tree/four' matches no image; "),
        (["tree", "--exclude", "*"], "tree: --exclude leaves no image of this directory"),
        (
            ["tree", "--exclude", "xyz"],
            "--exclude 'xyz' matches no image; use a name, or a path below tree\n",
        ),
        (
            ["tree/four", "--exclude", "four"],
            "tree/four: not a directory, and --exclude leaves out files of directories; "
            "remove --exclude, or give the directory instead\n",
        ),
        (["none", "--exclude", "four"], "none: cannot read: No such file or directory\n"),
    ],
)
def test_what_leaves_out_nothing_or_everything(verb: str, words: list[str], said: str) -> None:
    done = ftpatch(verb, *words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"ftpatch: {said}") and done.err.count("\n") == 1


def test_what_cannot_be_read_can_be_left_out() -> None:
    Path("tree/damaged.ko").write_bytes(b"\x7fELF")
    assert ftpatch("check", "tree").code == 2
    assert ftpatch("check", "tree", "--exclude", "damaged.ko").code == 0


def test_baselines_and_expected_functions() -> None:
    """Excluded images are not written, not missed and not reported as stale."""
    path = Path("tree/four")
    data = bytearray(path.read_bytes())
    data[ftpatch("list", "--json", path).json[0]["offset"]] ^= 0xFF
    path.write_bytes(data)
    without = ("tree", "--exclude", "four")
    for name in ("baseline", "expected"):
        assert ftpatch("check", *without, f"--write-{name}", f"no-{name}").code == 0
        assert '"four"' not in Path(f"no-{name}").read_text()
        ftpatch("check", "tree", f"--write-{name}", name)
        assert '"four"' in Path(name).read_text()
    done = ftpatch("check", *without, "--baseline", "baseline")
    assert (done.code, done.out) == (0, "3 images, 0 unreadable, every invariant holds\n")
    done = ftpatch("check", *without, "--expected", "expected")
    assert done.code == 0 and "expected: four: not checked; " in done.out
