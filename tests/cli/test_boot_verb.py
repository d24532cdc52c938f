# SPDX-License-Identifier: MIT
"""``ftpatch boot`` with something else in QEMU's place: how a boot ends, and what is told of it."""

from __future__ import annotations

import gzip
import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.boot_images import bzimage
from tests.support.boot_machines import boot, boot_command, machine_of
from tests.support.boot_small import STACKS, enabled, stream
from tests.support.command import PATIENCE, ftpatch

QEMU = """#!/bin/sh
for word; do
    case "$word" in
    file,id=events,path=*) cat "$SENT" >"${word#file,id=events,path=}" ;;
    file,id=console,path=*) echo "${SAID:-panic: the end}" >"${word#file,id=console,path=}" ;;
    */log) echo "$LOGGED" >"$word" ;;
    esac
done
eval "$THEN"
"""
SLEEPS = f"exec sleep {2 * PATIENCE}"
REPEATS = """for word; do
    case "$word" in
    file,id=events,path=*) out=${word#file,id=events,path=} ;;
    esac
done
sleep 1
while sleep 0.1; do cat "$AGAIN" >>"$out"; done
"""
FOLDED = "ksys_dup3 1\nksys_dup3;vfs_read 0\n"  # the last function has had no time yet


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that sends two events."""
    return machine_of(tmp_path, QEMU) | {"LOGGED": ""}


def _boot(
    folder: Path, machine: dict[str, str], then: str, *words: str
) -> subprocess.CompletedProcess[str]:
    return boot(folder, machine | {"THEN": then}, *words)


def test_every_append_counts(tmp_path: Path, machine: dict[str, str]) -> None:
    words = tmp_path / "words"
    then = f"printf '%s\\n' \"$@\" >{words}; exit 3"
    _boot(tmp_path, machine, then, "--append", "nokaslr", "--append", "quiet loglevel=1")
    assert any(
        line.endswith(" nokaslr quiet loglevel=1") for line in words.read_text().splitlines()
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "[ 0.1] KASLR enabled\n[ 9.0] Kernel Offset: 0x49c38aa00000 from 0xffff800008000000",
            "KASLR: console addresses are 0x49c38aa00000 above the image's",
        ),
        (
            "[    0.1] KASLR enabled\n[    0.2] and no more",
            "KASLR: console addresses differ from the image's; use --append nokaslr",
        ),
        ("[    0.1] KASLR disabled on command line\n[    9.0] Kernel Offset: disabled", ""),
    ],
)
def test_where_kaslr_put_the_kernel(
    said: str, told: str, tmp_path: Path, machine: dict[str, str]
) -> None:
    """The console has the addresses of where it ran; the report has those of the image."""
    done = _boot(tmp_path, machine | {"SAID": said}, "exit 3", "--format", "folded")
    lines = [line for line in done.stderr.splitlines() if "KASLR: " in line]
    assert lines == ([f"ftpatch: {told}"] if told else [])
    assert done.stdout == FOLDED


def test_an_end_of_its_own(tmp_path: Path, machine: dict[str, str]) -> None:
    done = _boot(tmp_path, machine, "exit 3", "--format", "folded")
    assert done.returncode == 3
    assert done.stdout == FOLDED
    assert "2 events; QEMU ended with 3" in done.stderr
    assert "last functions: ksys_dup3, vfs_read" in done.stderr
    assert "panic: the end" in done.stderr
    assert "\x1b" not in done.stderr  # no live line but on a terminal
    assert not list((tmp_path / "tmp").iterdir())


def test_a_hang(tmp_path: Path, machine: dict[str, str]) -> None:
    """Long enough for a busy machine to begin."""
    done = _boot(tmp_path, machine, SLEEPS, "--idle", "5", "--format", "folded")
    assert done.returncode == 1
    assert "hang in vfs_read+0x0\n" in done.stderr
    assert "calls: vfs_read < ksys_dup3\n" in done.stderr
    assert "no events and no console output for 5 seconds" in done.stderr
    assert "last functions: ksys_dup3, vfs_read" in done.stderr


def test_a_hang_with_interrupts(tmp_path: Path, machine: dict[str, str]) -> None:
    """``schedule`` hangs, ``vfs_write`` is the clock's. What was new last is a call that came once,
    behind the clock's."""
    top = STACKS[0]
    calls = [("ksys_dup3", top - 8), ("schedule", top - 64)]
    clock, once = ("vfs_write", top - 512), [("do_exit", top - 512), ("vfs_read", top - 600)]
    image = tmp_path / "vmlinux.boot"
    Path(machine["SENT"]).write_bytes(stream(image, [*calls, clock, *once]))
    again = tmp_path / "again"
    again.write_bytes(stream(image, [clock]))
    words = ("--idle", "3", "--format", "folded")
    done = _boot(tmp_path, machine | {"AGAIN": str(again)}, REPEATS, *words)
    assert done.returncode == 1
    assert "no new function and no console output for 3 seconds" in done.stderr
    assert "hang in schedule+0x0\n" in done.stderr
    assert "calls: schedule < ksys_dup3\n" in done.stderr


def test_a_limit(tmp_path: Path, machine: dict[str, str]) -> None:
    done = _boot(tmp_path, machine, SLEEPS, "--limit", "1", "--format", "folded")
    assert done.returncode == 124 and "ended after 1 seconds" in done.stderr


def test_a_triple_fault(tmp_path: Path, machine: dict[str, str]) -> None:
    done = _boot(tmp_path, machine | {"LOGGED": "Triple fault"}, "exit 0", "--format", "folded")
    assert done.returncode == 1 and "triple fault" in done.stderr


@pytest.mark.parametrize("words", [("--max", "2"), ("--max", "1")])
def test_a_stop(tmp_path: Path, machine: dict[str, str], words: tuple[str, ...]) -> None:
    done = _boot(tmp_path, machine, SLEEPS, *words, "--format", "folded")
    assert done.returncode == 0 and "tracer stopped" in done.stderr


def test_a_flight_recorder(tmp_path: Path, machine: dict[str, str]) -> None:
    done = _boot(tmp_path, machine, "exit 3", "--last", "1", "--format", "folded")
    assert (done.returncode, done.stdout) == (3, "vfs_read 0\n")
    assert "2 events; QEMU ended with 3" in done.stderr
    assert "last functions: ksys_dup3, vfs_read" in done.stderr


def test_no_events(tmp_path: Path, machine: dict[str, str]) -> None:
    done = _boot(tmp_path, machine | {"SENT": "/dev/null"}, "exit 0")
    assert done.returncode == 0 and done.stdout == ""
    assert "0 events" in done.stderr and "last functions: none" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals(tmp_path: Path, machine: dict[str, str], number: signal.Signals) -> None:
    own, end = pty.openpty()
    mark = tmp_path / "pid"
    command = boot_command(tmp_path, "--format", "folded", "-o", str(tmp_path / "out"))
    environment = machine | {"THEN": f"echo $$ >{mark}; {SLEEPS}"}
    child = subprocess.Popen(command, env=environment, stdout=end, stderr=end)
    os.close(end)
    said = b""
    while not (b"2 events, vfs_read" in said and mark.exists() and mark.read_text()):
        part = _read(own)  # as it goes
        assert part, said
        said += part
    child.send_signal(number)
    while part := _read(own):
        said += part
    code = child.wait(PATIENCE)
    os.close(own)
    assert not list((tmp_path / "tmp").iterdir())
    assert not _runs(mark.read_text().strip())
    # The machine is ended, and what it did is told.
    assert code == 124 and b"2 events; interrupted" in said
    assert (tmp_path / "out").read_text() == FOLDED


def _runs(pid: str) -> bool:
    """Whether a process is there, and not only waited for."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return False
        except OSError:
            return False
        time.sleep(0.1)
    return True


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "nosuch"), "unknown format"),
        (("--until", "nosuch"), "no such function"),
        (("--keep", "/"), "cannot create"),
        (("-o", "/dev/null"), "not a regular file"),
        (("--idle", "0"), "--idle"),
    ],
)
def test_what_is_wrong_is_said_before_it_boots(
    tmp_path: Path, machine: dict[str, str], words: tuple[str, ...], said: str
) -> None:
    done = _boot(tmp_path, machine, "exit 0", *words)
    assert done.returncode == 125 and said in done.stderr and done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_without_qemu_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enabled(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = ftpatch("boot", tmp_path / "vmlinux")
    assert done.code == 125
    assert done.err == "ftpatch: qemu-system-x86_64 is not installed; apt install qemu-system-x86\n"


@pytest.mark.parametrize("pack", ["gzip", "bzimage"])
def test_a_kernel_is_taken_out_of_its_container(
    tmp_path: Path, machine: dict[str, str], pack: str
) -> None:
    """QEMU gets the kernel itself; errors name the file that was given."""
    plain = _boot(tmp_path, machine, "exit 3", "--format", "folded")
    image = tmp_path / "vmlinux"
    data = image.read_bytes()
    squeezed = gzip.compress(data)
    packed = squeezed if pack == "gzip" else bzimage(squeezed)
    image.write_bytes(packed)
    kept = tmp_path / "kept"
    done = _boot(tmp_path, machine, "exit 3", "--format", "folded", "--keep", str(kept))
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (3, FOLDED)
    assert (kept / "vmlinux").read_bytes() == data
    assert image.read_bytes() == packed
    done = _boot(tmp_path, machine, "exit 3", "--sink", "nosuch")
    assert done.returncode == 125
    assert done.stderr.startswith(f"ftpatch: {image}: unsupported sink nosuch")
