# SPDX-License-Identifier: MIT
"""Processes that end, or become another program, while something is done to them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process.memory_target import writable_memory
from ftpatch.process.process import find_process
from tests.support.busy import ours_in
from tests.support.command import ftpatch
from tests.support.padded import padded
from tests.support.running import PROGRAM, running, starts_by_maps
from tests.support.stopping import until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")


def test_writing_to_one_that_has_ended(tmp_path: Path) -> None:
    """The kernel writes 0 bytes then, and reports no error."""
    path = padded(tmp_path, PROGRAM)
    with running(path) as program:
        start = starts_by_maps(program.pid)[str(path)]
        with writable_memory(find_process(program.pid)) as target:
            held = target.read(start, 4)
            assert held is not None
            target.write(start, held)
            program.kill()
            program.wait()
            with pytest.raises(InputError, match="has ended"):
                target.write(start, held)


def test_no_memory_is_left(tmp_path: Path) -> None:
    """The first call fails: it says so at once, and nothing stays."""
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        resource.prlimit(program.pid, resource.RLIMIT_AS, (4096, resource.RLIM_INFINITY))
        begun = time.monotonic()
        said = ftpatch("enable", *pid, "-o", tmp_path / "t.trace")
        assert said.code == 2 and "RLIMIT_AS" in said.err and time.monotonic() - begun < 5
        assert ftpatch("check", *pid).code == 0
        said = ftpatch("undo", *pid)
        assert said.code == 2 and "ftpatch is not attached" in said.err


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_one_that_is_stopped_is_undone_later(tmp_path: Path) -> None:
    with running(padded(tmp_path, PROGRAM)) as program:
        pid = ("--pid", str(program.pid))
        assert ftpatch("enable", *pid, "-o", tmp_path / "t.trace").code == 0
        os.kill(program.pid, signal.SIGSTOP)
        said = ftpatch("undo", *pid)
        assert said.code == 2 and "SIGSTOP" in said.err
        # Let go, it wakes once in the kernel to stop by itself (__ptrace_unlink()).
        until(lambda: _state(program.pid) == "T")
        os.kill(program.pid, signal.SIGCONT)
        assert ftpatch("undo", *pid).code == 0
        assert ftpatch("check", *pid).code == 0 and ours_in(program.pid) == []


VFORKS = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    puts("ready"); fflush(stdout);
    getchar();
    if (!vfork()) { usleep(2000000); _exit(0); }
    puts("back"); fflush(stdout);
    getchar();
}
"""


def test_a_thread_that_does_not_stop_at_first(tmp_path: Path) -> None:
    """It waits for a child that vfork() made, for longer than a stop may take."""
    path, trace = padded(tmp_path, VFORKS), tmp_path / "t.trace"
    pipe = subprocess.PIPE
    with subprocess.Popen(path, stdin=pipe, stdout=pipe) as program:
        assert program.stdin and program.stdout and program.stdout.readline() == b"ready\n"
        program.stdin.write(b"\n")
        program.stdin.flush()
        time.sleep(0.1)
        said = ftpatch("enable", "--pid", str(program.pid), "-o", trace)
        assert said.code == 0, said.err
        assert program.stdout.readline() == b"back\n"
        assert ftpatch("undo", "--pid", str(program.pid)).code == 0
        assert ftpatch("check", "--pid", str(program.pid)).code == 0
        program.communicate(b"\n")
    assert program.returncode == 0
