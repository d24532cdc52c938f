# SPDX-License-Identifier: MIT
"""Writing where it cannot be done: one line, exit 2, and nothing left behind."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import (
    Result,
    child_env,
    ftpatch,
    ftpatch_as,
    ftpatch_command,
    patched_process,
)
from tests.support.samples import sample

Copied = Callable[[str], Path]
NOBODY = 65534
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def _refused(result: Result, words: str) -> None:
    assert result.code == 2, result
    assert words in result.err and result.err.count("\n") == 1
    assert result.err.startswith("ftpatch: ") and "Traceback" not in result.err


@pytest.fixture
def open_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that another user can reach: those of pytest are for one user only."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def _as_nobody(*args: str | Path) -> Result:
    for verb in ("status", "list", "check", "disable", "enable", "diff"):  # to import it all
        ftpatch(verb, sample("fentry").path, *(["--dry-run"] if "able" in verb else []))
    return ftpatch_as(NOBODY, *args)


@root_only
def test_an_unreadable_input(open_folder: Path) -> None:
    path = open_folder / "pad"
    path.write_bytes(sample("pad").data)
    path.chmod(0o600)
    for verb in ("status", "list", "check", "enable", "undo", "diff"):
        result = _as_nobody(verb, path)
        _refused(result, str(path))
        assert "Permission denied" in result.err or "not readable" in result.err
    assert [p.name for p in open_folder.iterdir()] == ["pad"]


@root_only
def test_a_folder_that_cannot_be_written_to(open_folder: Path) -> None:
    path = open_folder / "pad"
    path.write_bytes(sample("pad").data)
    path.chmod(0o644)
    for way in ([], ["--in-place"], ["-o", str(open_folder / "other")]):
        _refused(_as_nobody("enable", path, *way), "cannot write: Permission denied")
    assert [p.name for p in open_folder.iterdir()] == ["pad"]
    assert path.read_bytes() == sample("pad").data


@root_only
def test_others_may_not_be_given_the_file(open_folder: Path) -> None:
    """Who is not root gets an output of their own, with the same mode."""
    path, output = open_folder / "pad", open_folder / "out" / "pad"
    path.write_bytes(sample("pad").data)
    path.chmod(0o755)
    output.parent.mkdir()
    os.chown(output.parent, NOBODY, -1)
    assert _as_nobody("enable", path, "-o", output).code == 0
    assert output.stat().st_uid == NOBODY and stat.S_IMODE(output.stat().st_mode) == 0o755


def test_a_folder_that_is_not_there(copy_of: Copied) -> None:
    path = copy_of("pad")
    _refused(ftpatch("enable", path, "-o", path.parent / "missing" / "x"), "No such file")
    _refused(ftpatch("enable", path, "-o", path / "x"), "Not a directory")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one copy of a sample, and no more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a tmpfs")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False
    )
    if done.returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    yield folder
    # Lazily: images of this process are still mapped.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("full", [56, 44, 40])
def test_a_full_disk(full: int, small_disk: Path, copy_of: Copied) -> None:
    """Full at once, in the copy, or in the journal behind it."""
    path = copy_of("vmlinux-x86_64")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(full << 10))
    _refused(ftpatch("enable", path, "-o", small_disk / "out"), "No space left on device")
    assert [p.name for p in small_disk.iterdir()] == ["ballast"]
    ballast.unlink()
    assert ftpatch("enable", path, "-o", small_disk / "out").code == 0


def test_a_full_disk_in_place(small_disk: Path) -> None:
    path = small_disk / "vmlinux"
    path.write_bytes(sample("vmlinux-x86_64").data)
    (small_disk / "ballast").write_bytes(bytes(24 << 10))
    _refused(ftpatch("enable", path, "--in-place"), "No space left on device")
    assert path.read_bytes() == sample("vmlinux-x86_64").data
    assert {p.name for p in small_disk.iterdir()} == {"vmlinux", "ballast"}


def test_a_limit_of_file_sizes(copy_of: Copied) -> None:
    path = copy_of("vmlinux-x86_64")

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        ftpatch_command("enable", str(path)),
        env=child_env(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    _refused(Result(done.returncode, done.stdout, done.stderr), "File too large")
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_kill_leaves_nothing(copy_of: Copied) -> None:
    """The output has no name until it is whole."""
    path = copy_of("vmlinux-x86_64")
    # Stopped between the copy and the rename, where a half of it could be seen.
    script = (
        "import os, signal\n"
        "from ftpatch.io.output import Copy\n"
        "Copy.appear = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert patched_process(script, "enable", path).code == -signal.SIGKILL
    left = [p.name for p in path.parent.iterdir()]
    assert left == [path.name] or _without_tmpfile(path.parent)


def _without_tmpfile(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_RDWR | os.O_TMPFILE))
    except OSError:
        pytest.skip("this file system has no O_TMPFILE")
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(number: signal.Signals, copy_of: Copied) -> None:
    path = copy_of("vmlinux-x86_64")
    script = (
        "import os\n"
        "from ftpatch.write.target import FileTarget\n"
        f"FileTarget.apply = lambda *_: os.kill(os.getpid(), {int(number)})\n"
    )
    done = patched_process(script, "enable", path)
    assert done.code == 128 + number
    assert done.err == "ftpatch: interrupted; nothing was written\n"
    assert [p.name for p in path.parent.iterdir()] == [path.name]
