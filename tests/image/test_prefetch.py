# SPDX-License-Identifier: MIT
"""What is begun before everything else: used once where it is right, and never in the way."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from ftpatch.image import prefetch
from ftpatch.image.payload import read_payload
from tests.support.boot_images import bzimage
from tests.support.boot_kernels import Stripped
from tests.support.boxes import sized
from tests.support.command import PATIENCE, Result, ftpatch, ftpatch_process
from tests.support.raw_kernels import raw_kernel

KERNEL = Stripped().build()
BOXED = bzimage(sized("zstd", KERNEL))
OTHER = bzimage(sized("zstd", Stripped(arranged=lambda sites: sites[9:]).build()))


class Reads:
    """Which files' payloads were read, and by which threads."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.early: list[bool] = []

    def __call__(self, path: Path, *more: Any) -> Any:  # noqa: ANN401 - as read_payload
        self.names.append(Path(path).name)
        self.early.append(threading.current_thread() is not threading.main_thread())
        return read_payload(path, *more)


@pytest.fixture
def reads() -> Iterator[Reads]:
    found = Reads()
    with mock.patch.object(prefetch, "read_payload", found):
        yield found
        _finish()  # of a file that was no longer there it is not waited for


def _put(folder: Path, name: str = "vmlinuz", data: bytes = BOXED) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _begun(*words: str | Path) -> Result:
    """A command as the real one begins."""
    prefetch.begin([str(word) for word in words[1:]])
    return ftpatch(*words)


def _finish() -> None:
    if prefetch._Prefetch.thread is not None:
        prefetch._Prefetch.thread.join(PATIENCE)
        assert not prefetch._Prefetch.thread.is_alive()


@pytest.mark.parametrize("verb", ["status", "list", "check", "extract"])
def test_it_is_read_once(verb: str, reads: Reads, tmp_path: Path) -> None:
    path = _put(tmp_path)
    assert _begun(verb, path).code == 0
    assert reads.names == ["vmlinuz"] and reads.early == [True]
    if verb == "extract":
        assert (tmp_path / "vmlinuz.elf").read_bytes() == KERNEL


def test_it_is_used_for_one_command(reads: Reads, tmp_path: Path) -> None:
    path = _put(tmp_path)
    assert _begun("status", path).code == 0 and ftpatch("status", path).code == 0
    assert reads.early == [True, False]


def test_an_image_as_it_is(reads: Reads, tmp_path: Path) -> None:
    """No more than the header is looked at ahead, and the file is changed as any other."""
    path = _put(tmp_path, "Image", bytes(raw_kernel("arm64-rela").data))
    before = path.read_bytes()
    assert _begun("enable", "--in-place", path, "-f", "vfs_*").code == 0
    assert reads.names == ["Image"]
    assert _begun("undo", path).code == 0 and path.read_bytes() == before


@pytest.mark.parametrize("verb", ["status", "check", "diff"])
def test_the_second_of_two(verb: str, reads: Reads, tmp_path: Path) -> None:
    """An ELF file comes first, which takes no time: what was begun is kept for the other."""
    plain, path = _put(tmp_path, "vmlinux", KERNEL), _put(tmp_path)
    assert _begun(verb, plain, path).code == 0
    assert reads.names.count("vmlinuz") == 1
    assert reads.early[reads.names.index("vmlinuz")]


def test_the_first_of_two(reads: Reads, tmp_path: Path) -> None:
    one, other = _put(tmp_path, "one"), _put(tmp_path, "other", OTHER)
    rows = _begun("status", "--json", one, other).json
    assert [row["sites"] for row in rows] == [309, 300]
    assert sorted(zip(reads.names, reads.early, strict=True)) == [
        ("one", True),
        ("other", False),
    ]


@pytest.mark.parametrize("how", ["renamed", "written", "shorter", "gone", "folder"])
@pytest.mark.parametrize("finished", [True, False], ids=["finished", ""])
def test_a_file_that_is_another_by_then(
    how: str, finished: bool, reads: Reads, tmp_path: Path
) -> None:
    """What counts is what is there when it is used."""
    path, other = _put(tmp_path), _put(tmp_path, "other", OTHER)
    prefetch.begin([str(path)])
    if finished:
        _finish()
    if how == "renamed":
        other.replace(path)
    elif how == "written":
        path.write_bytes(OTHER.ljust(len(BOXED), b"\0"))
        os.utime(path, ns=(1, 1))
    elif how == "shorter":
        os.truncate(path, 0x300)
    else:
        path.unlink()
        if how == "folder":
            path.mkdir()
    result = ftpatch("status", "--json", path)
    if how in ("renamed", "written"):
        assert result.only["sites"] == 300
        _finish()  # the thread may not have come to it yet
        assert reads.names.count("vmlinuz") == 2
    else:
        assert result.code == 2 and re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result
        words = {"gone": "No such file", "folder": "no images", "shorter": "truncated"}
        assert words[how] in result.err


@pytest.mark.parametrize("cut", [0x300, -400])
def test_an_error_is_told_once(cut: int, reads: Reads, tmp_path: Path) -> None:
    path = _put(tmp_path, data=BOXED[:cut])
    for verb in ("status", "enable", "extract", "diff"):
        result = _begun(verb, path)
        assert result.code == 2 and re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result
    assert all(reads.early) and len(reads.names) == 4
    real = ftpatch_process("status", path)
    assert (real.code, real.out, real.err) == (2, "", ftpatch("status", path).err)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [MemoryError(), OSError("no"), RuntimeError("no")], ids=repr)
def test_what_the_thread_cannot_do_is_done_again(
    error: Exception, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = _put(tmp_path)
    with mock.patch.object(prefetch, "read_payload", side_effect=error):
        prefetch.begin([str(path)])
        _finish()
    assert ftpatch("status", "--json", path).only["sites"] == 309
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("failing", ["os.open", "os.fstat", "os.pread", "os.stat"])
def test_a_file_that_fails_when_it_is_read(failing: str, tmp_path: Path) -> None:
    """As some of /sys do."""
    path = _put(tmp_path)
    with mock.patch(failing, side_effect=OSError(22, "Invalid argument")):
        prefetch.begin([str(path)])
    _finish()
    assert ftpatch("status", "--json", path).only["sites"] == 309
