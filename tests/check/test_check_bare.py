# SPDX-License-Identifier: MIT
"""Images without a table: nothing is checked, and that is said."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.command import ftpatch
from tests.support.elf_writer import Image
from tests.support.samples import SAMPLES

SAID = "ftpatch: no image has call sites: nothing was checked\n"


def _bare(path: Path) -> Path:
    path.write_bytes(Image().build())
    return path


def test_a_folder_in_which_nothing_can_be_checked(tmp_path: Path) -> None:
    """A build that lost its flags does not pass."""
    _bare(tmp_path / "a")
    done = ftpatch("check", tmp_path)
    said = "1 image, 1 without call sites, 0 unreadable, nothing to check\n"
    assert (done.code, done.out, done.err) == (1, said, SAID)
    suite = ET.fromstring(ftpatch("check", tmp_path, "--format", "junit").out)[0]
    assert suite.get("skipped") == suite.get("tests") != "0"


def test_a_folder_without_images(tmp_path: Path) -> None:
    """The folder is none."""
    (tmp_path / "notes").write_text("text\n")
    for verb in ("check", "status"):
        done = ftpatch(verb, tmp_path)
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith(f"ftpatch: {tmp_path}: no images in this directory; ")
    (tmp_path / "empty").mkdir()
    shutil.copy(SAMPLES[0].path, tmp_path / "kernel")
    done = ftpatch("check", tmp_path / "kernel", tmp_path / "empty")
    said = f"{tmp_path}/kernel: verdict: boots and ftrace works\n"
    assert (done.code, done.out) == (2, f"{said}1 image, 0 unreadable, 0 with findings\n")


def test_a_folder_in_which_something_can(tmp_path: Path) -> None:
    _bare(tmp_path / "a")
    shutil.copy(SAMPLES[0].path, tmp_path / "kernel")
    done = ftpatch("check", tmp_path)
    said = f"{tmp_path}/kernel: verdict: boots and ftrace works\n"
    said += "2 images, 1 without call sites, 0 unreadable, every invariant holds\n"
    assert (done.code, done.out, done.err) == (0, said, "")
