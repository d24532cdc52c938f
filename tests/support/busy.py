# SPDX-License-Identifier: MIT
"""A program that does everything at once, and checks it: tests/programs/busy.cc."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import child_env, ftpatch, ftpatch_command

__all__ = ["SAID", "busy", "busy_program", "ended", "ours_in", "taken_out"]

SOURCE = Path(__file__).parent.parent / "programs" / "busy.cc"
SAID = "0 errors, sum 1119\n"
"""What it says in the end, traced or not."""


def busy_program(folder: Path, *flags: str) -> Path:
    """Compile it to FOLDER/busy."""
    path = folder / "busy"
    subprocess.run(["g++", "-O1", *flags, SOURCE, "-o", path, "-pthread"], check=True)
    return path


@contextmanager
def busy(
    path: Path, workers: int, signals: int, *, killed: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Let it run: that many threads, and signals a second. It must be right in the end. ``killed``:
    who stops it may be killed at that moment, and all who would set its calls up again."""
    pipe = subprocess.PIPE
    words = [str(path), str(workers), str(signals), *["killed"] * killed]
    with subprocess.Popen(
        words,
        stdin=pipe,
        stdout=pipe,
        text=True,
        cwd=path.parent,  # for gmon.out
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        try:
            yield program
        finally:
            said, _ = program.communicate()
    assert (program.returncode, said) == (0, SAID)


def ours_in(pid: int) -> list[str]:
    """Mappings that no program of these tests has itself: code of no file, files to write to."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [
        line
        for line in lines
        if " rw-s " in line or (" r-xp 00000000 00:00 0" in line and "[" not in line)
    ]


def taken_out(pid: int) -> None:
    """Take everything out of it, by as many attempts as ftpatch asks for on a busy machine."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = ftpatch("undo", "--pid", str(pid))
        if said.code == 0 or "ftpatch is not attached" in said.err:
            return
    pytest.fail(said.err)


def ended(number: int, after: float, *words: str, both: bool = False) -> tuple[int, str]:
    """Run a command and end it by a signal, if it still runs after these seconds: its status, and
    what it said. ``both``: the child that does the work as well."""
    with subprocess.Popen(
        ftpatch_command(*words),
        env=child_env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            command.wait(after)
        except subprocess.TimeoutExpired:
            if both:
                os.killpg(command.pid, number)
            else:
                command.send_signal(number)
        _, said = command.communicate()
    # Python's own start, which a signal ends so, is over when the command line is loaded.
    assert "Traceback" not in said or "/ftpatch/cli/" not in said, said
    return command.returncode, said
