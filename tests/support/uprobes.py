# SPDX-License-Identifier: MIT
"""The kernel's uprobes, by perf: what they count, probes of ours count."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["Counting", "counting", "uprobe"]


@contextmanager
def uprobe(program: str, place: str) -> Iterator[str]:
    """The name of an event at a place in a program; skips where none can be had."""
    name = f"ftpatch_{os.getpid()}"
    if shutil.which("perf") is None:
        pytest.skip("perf is not there")
    add = ("perf", "probe", "-q", "-x", program, f"{name}:{name}={place}")
    done = subprocess.run(add, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no uprobes: {done.stderr.strip()}")
    try:
        yield f"{name}:{name}"
    finally:
        subprocess.run(("perf", "probe", "-q", "--del", f"{name}:{name}"), check=True)


class Counting:
    """A perf that counts an event in a process until it is asked for the number."""

    def __init__(self, perf: subprocess.Popen[str]) -> None:
        self._perf = perf

    def ends(self) -> int:
        """End it, and return what it counted."""
        self._perf.send_signal(signal.SIGINT)
        return int(self._perf.communicate()[1].splitlines()[-1].split(",")[0])


@contextmanager
def counting(event: str, pid: str) -> Iterator[Counting]:
    """Count an event in all threads of a process, from here on: perf says when it does."""
    (told, tell), (said, say) = os.pipe(), os.pipe()
    words = ["perf", "stat", "-x", ",", "-e", event, "-p", pid, "-D", "-1"]
    words += ["--control", f"fd:{told},{say}"]
    pipe = subprocess.PIPE
    with (
        os.fdopen(tell, "w") as to_perf,
        os.fdopen(said) as from_perf,
        subprocess.Popen(words, stderr=pipe, text=True, pass_fds=(told, say)) as perf,
    ):
        os.close(told)
        os.close(say)
        try:
            to_perf.write("enable\n")
            to_perf.flush()
            assert "ack" in from_perf.readline()
            yield Counting(perf)
        finally:
            perf.kill()
