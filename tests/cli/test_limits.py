# SPDX-License-Identifier: MIT
"""Limits of the process (getrlimit(2)) that are too low: one line, with the one to raise."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, child_env, ftpatch, ftpatch_command
from tests.support.padded import padded
from tests.support.running import PROGRAM, running

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs the journals of root")
KILOBYTE = 1024


def _limited(kind: int, limit: int, *words: str | Path) -> tuple[int, str, str]:
    """Run ftpatch in a process with a limit."""
    done = subprocess.run(
        ftpatch_command(*words),
        env=child_env(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        preexec_fn=lambda: resource.setrlimit(kind, (limit, limit)),
    )
    return done.returncode, done.stdout, done.stderr


def test_file_sizes(tmp_path: Path) -> None:
    path, out = padded(tmp_path, PROGRAM), tmp_path / "out"
    words = ("enable", path, "--tracer", "function", "-o", out)
    said = f"ftpatch: {out}: cannot write: File too large; raise the limit of file sizes"
    code, printed, told = _limited(resource.RLIMIT_FSIZE, KILOBYTE, *words)
    assert (code, printed, told) == (2, "", f"{said} (`ulimit -f`)\n")
    assert {one.name for one in tmp_path.iterdir() if "out" in one.name} == set()


def test_open_files(tmp_path: Path) -> None:
    """Of `trace`, which opens more at once than Python to begin with."""
    path = padded(tmp_path, PROGRAM)
    code, printed, told = _limited(resource.RLIMIT_NOFILE, 6, "trace", path)
    assert code == 125 and not printed and told.count("\n") == 1
    assert told.endswith("Too many open files; raise the limit of open files (`ulimit -n`)\n")


def test_memory(tmp_path: Path) -> None:
    """NumPy's libraries have no room."""
    path = padded(tmp_path, PROGRAM)
    said = "ftpatch: out of memory; raise the limit of memory (`ulimit -v`)\n"
    assert _limited(resource.RLIMIT_AS, 60_000 * KILOBYTE, "status", path) == (2, "", said)


@as_root
def test_no_part_of_a_journal_is_left(tmp_path: Path) -> None:
    folder = Path("/run/ftpatch")
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = str(program.pid)
        words = ("enable", "--pid", pid, "-f", "two", "-o", tmp_path / "t.trace")
        code, printed, told = _limited(resource.RLIMIT_FSIZE, 0, *words)
        assert code == 2 and not printed and told.count("\n") == 1
        assert "cannot write: File too large; raise the limit of file sizes" in told
        assert not [one for one in folder.iterdir() if f".{pid}." in f".{one.name}"]
        assert ftpatch("check", "--pid", pid).code == 0
