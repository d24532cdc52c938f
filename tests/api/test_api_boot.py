# SPDX-License-Identifier: MIT
"""``Image.boot``, with something else in QEMU's place that sends what it is told to."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import ftpatch
from tests.cli.test_boot_verb import QEMU
from tests.cli.test_boot_watch import QEMU as WATCHED
from tests.support.boot_small import STACKS, enabled, stream
from tests.support.command import ftpatch as command

TOP = STACKS[0] - 8
EVENTS = [("ksys_dup3", TOP), ("vfs_read", TOP - 56), ("do_exit", TOP - 56), ("schedule", TOP)]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ftpatch.Image:
    sent, tool = tmp_path / "sent", tmp_path / "bin" / "qemu-system-x86_64"
    sent.write_bytes(stream(enabled(tmp_path), EVENTS))
    tool.parent.mkdir()
    tool.write_text(QEMU)
    tool.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    for name, value in (("SENT", str(sent)), ("LOGGED", ""), ("THEN", "exit 3")):
        monkeypatch.setenv(name, value)
    return ftpatch.open(tmp_path / "vmlinux")


def test_an_end_of_its_own(
    kernel: ftpatch.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tmp_path / "words"
    monkeypatch.setenv("THEN", f"printf '%s\\n' \"$@\" >{words}; exit 3")
    boot = kernel.boot(sink="debugcon", append=["nokaslr", "quiet"], qemu=["-smp", "2"])
    assert (boot.events, boot.status, boot.stopped) == (4, 3, False)
    assert boot.ended == "QEMU ended with 3" and boot.console == "panic: the end\n"
    assert boot.last == [name for name, _ in EVENTS]
    assert "last console output: panic: the end" in boot.notes
    given = words.read_text().splitlines()
    assert given[-2:] == ["-smp", "2"] and given[-3].endswith(" nokaslr quiet")


def test_its_accesses(
    kernel: ftpatch.Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin" / "qemu-system-x86_64").write_text(WATCHED)
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    monkeypatch.setenv("STUB", "")
    boot = kernel.boot(sink="debugcon", watch="an_object:rw-")
    found = boot.accesses()
    assert found["new"].tolist() == [1, 1, 2]
    assert found["time"].tolist() == [len(EVENTS)] * 3
    with pytest.raises(ftpatch.UsageError, match="no variable was watched"):
        kernel.boot(sink="debugcon").accesses()


def test_its_calls(kernel: ftpatch.Image) -> None:
    """By the stack pointers that were sent: two calls below the first one, and one beside it."""
    boot = kernel.boot(sink="debugcon")
    columns = boot.columns()
    assert columns["function"].tolist() == [name for name, _ in EVENTS]
    assert columns["depth"].tolist() == [0, 1, 1, 0]
    rows = command("report", "--json", boot.stream, "--image", boot.image).json
    begun = [row["function"] for row in rows if row["event"] == "entry"]
    assert columns["function"].tolist() == begun
    assert boot.profile()["hits"].tolist() == [1, 1, 1, 1]
    below = ftpatch.Trace(boot.stream, image=boot.image, only="ksys_dup3").columns()
    assert below["function"].tolist() == ["ksys_dup3", "vfs_read", "do_exit"]


def test_the_tracer_stops(kernel: ftpatch.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEN", "exec sleep 600")
    boot = kernel.boot(sink="debugcon", until="schedule", max=100)
    assert boot.stopped and boot.ended == "tracer stopped" and boot.notes == []
    slow = kernel.boot(sink="debugcon", limit=1)
    assert not slow.stopped and slow.ended == "ended after 1 seconds" and slow.status is None


def test_what_it_leaves(kernel: ftpatch.Image, tmp_path: Path) -> None:
    boot, kept = kernel.boot(sink="debugcon"), tmp_path / "kept"
    assert list((tmp_path / "tmp").iterdir()) == [boot.stream.parent]
    del boot
    gc.collect()
    assert not list((tmp_path / "tmp").iterdir())
    boot = kernel.boot(sink="debugcon", keep=kept)
    assert boot.stream.parent == kept and boot.image == kept / "vmlinux.boot"
    del boot
    gc.collect()
    assert (kept / "stream").exists()
    with pytest.raises(ftpatch.UsageError, match="cannot create: File exists"):
        kernel.boot(sink="debugcon", keep=kept)
    with pytest.raises(ftpatch.UsageError, match="no such function"):
        kernel.boot(sink="debugcon", until="nowhere")
    assert not list((tmp_path / "tmp").iterdir())


def test_no_events(kernel: ftpatch.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENT", "/dev/null")
    boot = kernel.boot(sink="debugcon")
    assert boot.events == 0 and boot.last == [] and "last functions: none" in boot.notes
    with pytest.raises(ftpatch.InputError, match="empty"):
        boot.columns()


def test_without_qemu(kernel: ftpatch.Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ftpatch.UsageError, match="is not installed; apt install"):
        kernel.boot(sink="debugcon")
