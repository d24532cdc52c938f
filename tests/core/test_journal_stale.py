# SPDX-License-Identifier: MIT
"""What cannot be undone is not written onto: a file whose journal does not say any more what stands
there, by every verb that writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ftpatch.core.journal import read_blocks
from tests.support.command import ftpatch

SOURCE = """
int counter, other;
__attribute__((noinline)) int step(int n) { return counter += n; }
int main(void) { return step(1) - 1; }
"""


def _program(folder: Path) -> Path:
    (folder / "a.c").write_text(SOURCE)
    program = folder / "a"
    flags = ["-O1", "-fpatchable-function-entry=5"]
    subprocess.run(["gcc", *flags, str(folder / "a.c"), "-o", str(program)], check=True)
    return program


def _damaged(program: Path, which: int) -> bytes:
    """One byte that the latest command wrote, changed by other means."""
    data = bytearray(program.read_bytes())
    (block, *_) = read_blocks(program, np.frombuffer(bytes(data), np.uint8))
    data[int(block.changes.offset[which])] ^= 1
    program.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize(
    "command",
    [
        ("enable", "--to", "step"),
        ("enable", "--tracer", "function"),
        ("disable",),
        ("probe", "p step"),
        ("probe", "p step", "--no-optimize"),
        ("watch", "counter:rw-"),
        ("undo",),
    ],
    ids=" ".join,
)
def test_after_enable(command: tuple[str, ...], tmp_path: Path) -> None:
    program = _program(tmp_path)
    assert ftpatch("enable", program, "--to", "step", "-f", "main", "--in-place").code == 0
    held = _damaged(program, 0)
    verb, *args = command
    for place in [] if verb == "undo" else [("-o", str(tmp_path / "out"))], [("--in-place",)]:
        for more in place:
            done = ftpatch(verb, program, *args, *more)
            assert done.code == 1, done.err
            assert program.read_bytes() == held and not (tmp_path / "out").exists()
            if verb in ("probe", "watch"):
                assert "differ from what the journal recorded" in done.err
                assert "`ftpatch undo` would refuse this file" in done.err


def test_after_watch(tmp_path: Path) -> None:
    """Later requests change the table that the first one laid in."""
    program = _program(tmp_path)
    assert ftpatch("watch", program, "counter:rw-", "--in-place").code == 0
    (block,) = read_blocks(program, np.frombuffer(program.read_bytes(), np.uint8))
    e_entry = int(np.flatnonzero(block.changes.offset == 0x18)[0])
    held = _damaged(program, e_entry)
    for requests in (["other:-w-"], ["counter:---"]):
        done = ftpatch("watch", program, *requests, "--in-place")
        assert (done.code, program.read_bytes()) == (1, held), done.err
        assert "`ftpatch undo` would refuse this file" in done.err


def test_what_can_be_undone_is_written(tmp_path: Path) -> None:
    program = _program(tmp_path)
    before = program.read_bytes()
    commands: tuple[list[str | Path], ...] = (
        ["enable", program, "--to", "step", "-f", "main"],
        ["watch", program, "counter:rw-"],
        ["watch", program, "other:-w-"],
        ["disable", program, "-f", "main"],
    )
    for command in commands:
        done = ftpatch(*command, "--in-place")
        assert done.code == 0, done.err
    assert ftpatch("undo", program, "--all").code == 0
    assert program.read_bytes() == before
