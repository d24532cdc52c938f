# SPDX-License-Identifier: MIT
"""ftpatch ended at any moment: the process lives on, and `undo --pid` takes out what was left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.busy import busy, busy_program, ended, ours_in, taken_out
from tests.support.command import child_env, ftpatch, ftpatch_command, patched_process
from tests.support.sampling import scaled
from tests.support.stopping import until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")


def test_a_command_that_is_killed_is_ended_in_order(tmp_path: Path) -> None:
    """Its child takes out what it has begun, when it is over with it."""
    path, trace = busy_program(tmp_path, "-fpatchable-function-entry=5"), tmp_path / "t.trace"
    with busy(path, 2, 100) as program:
        words = ("trace", "--pid", str(program.pid), "--tracer", "function", "-o", str(trace))
        with subprocess.Popen(ftpatch_command(*words), env=child_env()) as command:
            until(lambda: len(ours_in(program.pid)) > 1)
            command.kill()
        until(lambda: ours_in(program.pid) == [], 60)
        assert "ftpatch is not attached" in ftpatch("undo", "--pid", str(program.pid)).err
        assert ftpatch("check", "--pid", str(program.pid)).code == 0


def test_a_command_that_is_killed_before_it_begins_changes_nothing(tmp_path: Path) -> None:
    """Its child waits for another ftpatch meanwhile."""
    path, trace = busy_program(tmp_path, "-fpatchable-function-entry=5"), str(tmp_path / "t.trace")
    with busy(path, 2, 100) as program:
        place = Path("/proc", str(program.pid))
        held = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(held, fcntl.LOCK_EX)
        words = ("enable", "--pid", str(program.pid), "--tracer", "function", "-o", trace)
        with subprocess.Popen(ftpatch_command(*words), env=child_env()) as command:
            children = Path("/proc", str(command.pid), "task", str(command.pid), "children")
            until(lambda: children.read_text().split() != [])
            child = Path("/proc", children.read_text().split()[0])
            until(lambda: _has_opened(child, place), 60)
            command.kill()
        os.close(held)
        seen = list[str]()
        while child.exists():
            seen += ours_in(program.pid)
        assert seen == []
        assert "ftpatch is not attached" in ftpatch("undo", "--pid", str(program.pid)).err


SIGNALLED = """
import os, signal
from ftpatch.api import attaching
from ftpatch.cli import process_update
from ftpatch.errors import InputError
from ftpatch.process import attached
before = {where}
def signalled(*words, **more):
    os.kill(os.getpid(), signal.SIGTERM)
    return before(*words, **more)
def busy(process):
    raise InputError(None, "a thread did not stop")
{where} = signalled
attaching.detach = busy
"""


@pytest.mark.parametrize("where", ["process_update._tell", "attached.called"])
def test_an_interrupted_command_says_what_it_has_left(tmp_path: Path, where: str) -> None:
    """Also where it could not be taken out, or the signal came after that."""
    path, trace = busy_program(tmp_path, "-fpatchable-function-entry=5"), tmp_path / "t.trace"
    with busy(path, 2, 100) as program:
        words = ("enable", "--pid", str(program.pid), "--tracer", "function", "-o", trace)
        said = patched_process(SIGNALLED.format(where=where), *words)
        assert said.code == 128 + signal.SIGTERM
        left = f"`ftpatch undo --pid {program.pid}` takes out what it has left"
        assert said.err == f"ftpatch: interrupted; {left}\n"
        taken_out(program.pid)
        assert ours_in(program.pid) == []


def _has_opened(process: Path, path: Path) -> bool:
    for one in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            if one.readlink() == path:
                return True
    return False


@pytest.mark.scaled
@pytest.mark.parametrize("both", [False, True], ids=["alone", "both"])
def test_killed_at_any_moment(both: bool, tmp_path: Path) -> None:
    """``both``: the child as well, when nobody is left to set up what the stop ended."""
    path, rng = busy_program(tmp_path, "-fno-exceptions", "-fpatchable-function-entry=5"), random
    trace = str(tmp_path / "t.trace")
    with busy(path, 4, 100, killed=both) as program:
        pid = ("--pid", str(program.pid))
        enable = ("enable", *pid, "-o", trace, "--force")
        begun = time.monotonic()
        assert ended(0, 60, *enable)[0] == 0
        enabling = time.monotonic() - begun
        ended(0, 60, "undo", *pid)
        undoing = time.monotonic() - begun - enabling
        taken_out(program.pid)
        for _ in range(scaled(16, 3, 250)):
            number = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            tracer = rng.choice(["function", "function_graph", "function_profile"])
            moment = enabling * rng.uniform(0.3, 1.1)
            code, said = ended(number, moment, *enable, "--tracer", tracer, both=both)
            assert code == 0 or number != signal.SIGKILL or code == -signal.SIGKILL, said
            if "interrupted" in said and "undo --pid" not in said:
                assert ours_in(program.pid) == []  # it took everything out itself
            if rng.random() < 0.7:
                moment = undoing * rng.uniform(0.3, 1.1)
                ended(signal.SIGKILL, moment, "undo", *pid, both=both)
            taken_out(program.pid)
            assert ours_in(program.pid) == []
            checked = ftpatch("check", *pid)
            assert checked.code == 0, checked.out
