# SPDX-License-Identifier: MIT
"""Where the trace file goes: programs that end in every way, disks without room, other users."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.trace_events import ENTRIES, EXITS, Trace, balance, read_trace
from tests.support.tracer_programs import Form, build, run, traced

NOBODY = 65534
CALLS = 121
"""Of leaf() and end(), before a mode of exits.c ends the program."""
ENDED = 2
"""enum trace_flags."""


@pytest.fixture
def exits(tmp_path: Path) -> Path:
    """A traced program that ends in many ways."""
    return traced(build(Form(level="-O0"), "exits.c", tmp_path), "function_graph")


def _one(folder: Path) -> Trace:
    (path,) = folder.glob("*.trace")
    return read_trace(path)


@pytest.mark.parametrize(
    ("mode", "whole"),
    [
        ("exit", True),
        ("thread", True),
        ("_exit", False),
        ("exit_group", False),
        ("abort", False),
        ("kill", False),
        ("term", False),
        ("trap", False),
    ],
)
def test_what_was_recorded_is_readable(exits: Path, mode: str, whole: bool, tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    run(exits, [mode], cwd=room)
    trace = _one(room)
    entries = sum(event.type in ENTRIES for event in trace.events)
    returned = sum(event.type in EXITS for event in trace.events)
    assert entries >= CALLS and entries - returned >= 21
    assert bool(trace.flags & ENDED) == whole
    first = max(trace.threads, key=lambda thread: len(thread.events))
    assert len(balance(first)) >= 21, "main() and end() never returned"
    assert not any(trace.lost.values())


def test_a_file_that_is_there_is_not_touched(exits: Path, tmp_path: Path) -> None:
    room, held = tmp_path / "room", tmp_path / "held"
    room.mkdir()
    held.write_bytes(b"mine")
    run(exits, ["exit"], cwd=room, env={"FTPATCH_TRACE": str(held)})
    assert held.read_bytes() == b"mine"
    (other,) = tmp_path.glob("held.*")
    assert read_trace(other).pid == int(other.suffix[1:])
    assert not list(room.glob("*.trace"))


def test_a_link_is_not_followed(exits: Path, tmp_path: Path) -> None:
    room, link, target = tmp_path / "room", tmp_path / "link", tmp_path / "target"
    room.mkdir()
    link.symlink_to(target)
    run(exits, ["exit"], cwd=room, env={"FTPATCH_TRACE": str(link)})
    assert not target.exists() and link.is_symlink()


def _mounted(folder: Path, size: str) -> None:
    folder.mkdir()
    if os.getuid():
        pytest.skip("only root mounts a file system")
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(done.stderr.strip())


@pytest.mark.parametrize(("size", "file"), [("16k", False), ("1m", True), ("20m", True)])
def test_a_small_disk(exits: Path, size: str, file: bool, tmp_path: Path) -> None:
    """It gets what there is room for, all of which can be written; or nothing."""
    disk, room = tmp_path / "disk", tmp_path / "room"
    room.mkdir()
    _mounted(disk, size)
    try:
        plain = run(exits, ["exit"], cwd=room)
        done = run(exits, ["exit"], cwd=room, env={"FTPATCH_TRACE": str(disk / "t.trace")})
        assert (done.out, done.status) == (plain.out, plain.status)
        assert len(list(disk.iterdir())) == file
        if file:
            assert len(list(_one(disk).events)) > CALLS
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _as_nobody(program: Path, cwd: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [program, *args], cwd=cwd, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True
    )


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can enter, and none but this test has; needs root."""
    if os.getuid():
        pytest.skip("only root becomes another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_a_folder_that_cannot_be_written(exits: Path, public: Path) -> None:
    program = Path(shutil.copy2(exits, public))
    done = _as_nobody(program, public, "exit")
    assert done.returncode == 11 and b"at exit" in done.stdout
    assert not list(public.glob("*.trace"))


def test_a_privileged_program_is_not_traced(exits: Path, public: Path) -> None:
    """Its user has no say in what files it makes."""
    program = Path(shutil.copy2(exits, public))
    program.chmod(0o4755)
    open_to_all = public / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    done = _as_nobody(program, open_to_all, "exit")
    assert done.returncode == 11
    assert not list(open_to_all.iterdir())
    program.chmod(0o755)
    assert _as_nobody(program, open_to_all, "exit").returncode == 11
    assert len(list(open_to_all.iterdir())) == 1


def test_each_program_that_execs_itself_has_a_file(tmp_path: Path) -> None:
    """All of them have one process id."""
    program = traced(build(Form(), "processes.c", tmp_path), "function_graph")
    room = tmp_path / "room"
    room.mkdir()
    assert run(program, ["again", "x"], cwd=room).status == 13
    assert len(list(room.glob("*.trace*"))) == 3
