# SPDX-License-Identifier: MIT
"""Folders that hold more than modules: which files are images, and what ``check`` says of them."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from ftpatch.image.folder import is_image
from tests.support.boxes import ELF_BOXES, IMAGE_BOXES
from tests.support.command import ftpatch
from tests.support.raw_kernels import raw_kernel
from tests.support.samples import BUILT, SAMPLES, sample


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _folder() -> Path:
    """Programs, kernels, a module, and much that is none of these."""
    folder = Path("tree/sub")
    folder.mkdir(parents=True)
    for name in ("pad", "fentry", "libpad.so", "vmlinux-arm64"):
        shutil.copyfile(BUILT / name, folder / name)
    Path("tree/vmlinux.gz").write_bytes(gzip.compress(sample("vmlinux-x86_64").data))
    data = bytearray(sample("pad").data)
    for name, at, value in (("object", 16, 1), ("core", 16, 4), ("sparc", 18, 43), ("other", 4, 1)):
        changed = bytearray(data)
        changed[at] = value
        Path(f"tree/{name}").write_bytes(changed)
    Path("tree/notes").write_text("#!/bin/sh\n")
    Path("tree/empty").touch()
    Path("tree/notes.gz").write_bytes(gzip.compress(b"text\n" * 1000))
    Path("tree/damaged.gz").write_bytes(gzip.compress(os.urandom(1000))[:20])
    os.mkfifo("tree/pipe")
    Path("tree/link").symlink_to("sub/pad")
    return folder


IMAGES = {"sub/pad", "sub/fentry", "sub/libpad.so", "sub/vmlinux-arm64", "vmlinux.gz"}


def test_images_are_known_by_how_they_begin() -> None:
    _folder()
    rows = ftpatch("status", "--json", "tree").json
    assert {os.path.relpath(row["path"], "tree") for row in rows} == IMAGES
    text = ftpatch("status", "tree").out
    assert f"{len(IMAGES)} images, {len(IMAGES)} with sites, 0 bad" in text
    result = ftpatch("check", "tree")
    assert (result.code, result.err) == (0, "")
    assert f"{len(IMAGES)} images, 0 unreadable, every invariant holds" in result.out


@pytest.mark.parametrize("name", [*ELF_BOXES, *IMAGE_BOXES])
def test_containers_are_images(name: str) -> None:
    inside = sample("vmlinux-x86_64").data
    if name in IMAGE_BOXES:
        inside = bytes(raw_kernel("arm64-rela").data)
    Path("file").write_bytes((ELF_BOXES | IMAGE_BOXES)[name].pack(inside))
    assert is_image(Path("file"))


@pytest.mark.parametrize("data", [b"MZ" + bytes(600), b"\x7fELF", b"", b"\x1f\x8b\x08", b"BZh9"])
def test_others_are_none(data: bytes) -> None:
    Path("file").write_bytes(data)
    assert not is_image(Path("file"))


def test_a_finding_in_a_program_of_a_folder() -> None:
    folder = _folder()
    data = bytearray((folder / "pad").read_bytes())
    site = ftpatch("list", "--json", folder / "pad").json[0]
    data[site["offset"]] = 0xCC
    (folder / "pad").write_bytes(data)
    result = ftpatch("check", "--json", "tree")
    assert result.code == 1
    assert [(row["path"], row["invariant"]) for row in result.json] == [
        ("tree/sub/pad", "site-known")
    ]
    assert ftpatch("check", "--write-baseline", "known", "tree").code == 0
    assert ftpatch("check", "--baseline", "known", "tree").code == 0


def test_one_without_a_table_is_no_error_there_unless_it_is_expected() -> None:
    Path("tree").mkdir()
    for name in ("pad", "other"):
        shutil.copyfile(BUILT / "pad", f"tree/{name}")
    assert ftpatch("check", "--write-expected", "list", "tree").code == 0
    shutil.copyfile(BUILT / "libfentry.so", "tree/pad")
    assert ftpatch("check", "tree").code == 0
    result = ftpatch("check", "--json", "--expected", "list", "tree")
    assert result.code == 1 and {row["invariant"] for row in result.json} == {"record-expected"}


def test_a_damaged_image_is_told() -> None:
    folder = _folder()
    (folder / "pad").write_bytes(sample("pad").data[:200])
    result = ftpatch("check", "tree")
    assert result.code == 2 and result.err.startswith("ftpatch: tree/sub/pad: ")


def test_a_folder_of_nothing() -> None:
    Path("tree").mkdir()
    for verb in ("status", "check"):
        result = ftpatch(verb, "tree")
        assert result.code == 2 and result.err.count("\n") == 1
        assert "tree: no images in this directory" in result.err


def test_the_samples_as_a_folder() -> None:
    rows = ftpatch("status", "--json", BUILT).json
    assert {Path(row["path"]).name for row in rows} == {s.name for s in SAMPLES}
    assert ftpatch("check", BUILT).code == 0
