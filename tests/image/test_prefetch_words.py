# SPDX-License-Identifier: MIT
"""Words of a command line of which nothing is begun ahead, and which nothing may hang on."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from ftpatch.image import prefetch
from tests.support.boot_images import bzimage
from tests.support.boot_kernels import Stripped
from tests.support.boxes import PACKERS, sized
from tests.support.command import (
    PATIENCE,
    child_env,
    ftpatch,
    ftpatch_as,
    ftpatch_command,
    ftpatch_process,
    patched_process,
)

KERNEL = Stripped().build()
BOXED = bzimage(sized("zstd", KERNEL))


def _put(folder: Path, name: str = "vmlinuz", data: bytes = BOXED) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _odd_words(folder: Path) -> dict[str, str]:
    (folder / "folder.xz").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "dangling").symlink_to("nothing")
    (folder / "to-pipe").symlink_to("pipe")
    huge = _put(folder, "huge", b"")
    os.truncate(huge, prefetch.MAX_FILE + 1)
    _put(folder, "small", PACKERS["xz"](b"\0"))
    _put(folder, "elf", KERNEL)
    _put(folder, "empty", b"")
    made = ["folder.xz", "pipe", "dangling", "to-pipe", "huge", "small", "elf", "empty", "missing"]
    words = {name: str(folder / name) for name in made}
    words |= {"option": "--json", "dash": "-", "nothing": "", "filter": "vfs_*", "long": "x" * 5000}
    return words | {"nul": "a\0b", "device": "/dev/zero", "tty": "/dev/tty", "bytes": "\udcff"}


def test_words_that_are_no_image(tmp_path: Path) -> None:
    words = _odd_words(tmp_path)
    with mock.patch("threading.Thread") as thread:
        for name, word in words.items():
            prefetch.begin([word])
            assert not thread.called, name
        prefetch.begin([*words.values(), str(_put(tmp_path))])
        assert thread.call_count == 1, "the first that is one is found among them"
    prefetch._Prefetch.thread = None


@pytest.mark.parametrize("name", ["pipe", "to-pipe", "folder.xz", "huge", "empty", "missing"])
def test_such_words_hang_nothing(name: str, tmp_path: Path) -> None:
    words, path = _odd_words(tmp_path), _put(tmp_path)
    for command in ((words[name], path), (path, words[name])):
        result = ftpatch_process("status", *command)
        assert result.code == 2 and f"{path}: x86_64 bzImage" in result.out
        assert re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result
    result = ftpatch_process("diff", path, words[name])
    assert result.code == 2 and re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result


def test_a_pipe_is_left_to_who_reads_it(tmp_path: Path) -> None:
    """A shell's <(...): opened and closed again, its writer would be gone."""
    image, baseline = tmp_path / "image", tmp_path / "baseline"
    image.write_bytes(KERNEL)
    assert ftpatch("check", "-q", image, "--write-baseline", baseline).code == 0
    done = subprocess.run(
        ftpatch_command("check", "--baseline", "/dev/fd/0", str(image)),
        env=child_env(),
        input=baseline.read_bytes(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_in_place_of_the_file(tmp_path: Path) -> None:
    """It comes between two looks at the name: opening it would wait for a writer."""
    path = _put(tmp_path)
    with mock.patch("threading.Thread.start"):
        prefetch.begin([str(path)])
    thread, prefetch._Prefetch.thread = prefetch._Prefetch.thread, None
    assert thread is not None
    path.unlink()
    os.mkfifo(path)
    thread.start()
    thread.join(PATIENCE)
    stuck = thread.is_alive()
    if stuck:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        thread.join()
    assert not stuck


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = _put(tmp_path)
    path.chmod(0)
    ftpatch("status", path)
    result = ftpatch_as(65534, "status", path)
    assert result.code == 2 and re.fullmatch(r"ftpatch: [^\n]+\n", result.err), result


@pytest.mark.parametrize(
    "words", [["--nope"], ["--help"], ["-o", "other", "--format", "yaml"], ["other"]], ids=str
)
def test_the_end_waits_for_no_thread(words: list[str], tmp_path: Path) -> None:
    """Whatever ends the command before it needs the payload, or without."""
    script = (
        "import threading, ftpatch.image.prefetch\n"
        "ftpatch.image.prefetch.read_payload = lambda *_: threading.Event().wait()\n"
    )
    verb = "list" if words == ["other"] else "extract"
    done = patched_process(script, verb, _put(tmp_path), *words, cwd=tmp_path)
    assert done.code == (0 if words == ["--help"] else 2)
    assert "Traceback" not in done.err and done.err.count("\n") <= 1
