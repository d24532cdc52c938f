# SPDX-License-Identifier: MIT
"""What ``check`` prints in each format, at 80 columns: files in golden/, as in test_golden.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_golden import _copy, _same
from tests.support.command import Result, ftpatch


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _images() -> list[Path]:
    """A program whose first site holds something else, a kernel that will say an ftrace bug, and
    what is no image."""
    path = _copy("fentry")
    data = bytearray(path.read_bytes())
    data[ftpatch("list", "--json", path).json[0]["offset"]] ^= 0xFF
    path.write_bytes(data)
    kernel, text = _copy("vmlinux-x86_64"), Path("notes.txt")
    keep = ["-f", "vfs_read", "--keep-records"]
    assert ftpatch("disable", "--in-place", kernel, *keep).code == 0
    text.write_text("no ELF\n")
    return [path, kernel, text]


@pytest.mark.parametrize("format_", ["text", "json", "github", "junit"])
def test_check(format_: str) -> None:
    _same(f"check-{format_}", ftpatch("check", "--format", format_, *_images()))


def test_check_with_a_baseline() -> None:
    path, kernel, text = _images()
    written = [ftpatch("check", "--write-baseline", "known", path, kernel, text)]
    written.append(ftpatch("check", "--write-baseline", "known", path, kernel))
    lines = Result(0, Path("known").read_text(), "")
    assert ftpatch("undo", kernel).code == 0
    _same(
        "check-baseline",
        *written,
        lines,
        ftpatch("check", "--baseline", "known", path, kernel),
        ftpatch("check", "--baseline", "known", path, "-v"),
    )
