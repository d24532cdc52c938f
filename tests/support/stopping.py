# SPDX-License-Identifier: MIT
"""Programs to be stopped while they run, which are no children of the tests'."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ftpatch.process.process import Process, find_process
from tests.support.command import PATIENCE

__all__ = ["Running", "built", "has_opened", "running", "until"]


def built(source: Path, folder: Path) -> Path:
    """A C file as a program in a folder."""
    path = folder / source.stem
    words = ["gcc", "-O1", "-w", "-pthread", str(source), "-o", str(path), "-lrt"]
    subprocess.run(words, check=True)
    return path


def until(true: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something to be so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.001)


class Running:
    """A program that has said `ready PID`."""

    def __init__(self, shell: subprocess.Popen[str], process: Process) -> None:
        self._shell = shell
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def states(self) -> str:
        """The state of every thread, a letter each."""
        out = ""
        for one in (self.process.place / "task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                out += (one / "stat").read_text().rpartition(")")[2][1]
        return out

    def pending(self) -> bool:
        """Whether a signal waits to be delivered."""
        text = (self.process.place / "status").read_text()
        lines = dict(line.split(":\t") for line in text.splitlines())
        return any(int(lines[name], 16) for name in ("SigPnd", "ShdPnd"))

    def wait_asleep(self) -> None:
        """Wait until all threads wait, and no signal."""
        until(lambda: not self.pending() and set(self.states()) == {"S"} and not self.pending())

    def status(self) -> int:
        """What the shell says of its end: 128 and the signal."""
        self._shell.communicate(timeout=PATIENCE)
        return self._shell.returncode

    def ended(self, said: str = "\n") -> str:
        """What it prints until it ends, when it is told something. It must end well."""
        out, _ = self._shell.communicate(said, timeout=PATIENCE)
        assert self._shell.returncode == 0, (self._shell.returncode, out)
        return out


@contextmanager
def running(*words: Path | str) -> Iterator[Running]:
    """Run a program in a shell of its own."""
    pipe = subprocess.PIPE
    line = ["sh", "-c", '"$@"; exit $?', "sh", *map(str, words)]
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True) as shell:
        assert shell.stdout is not None
        said = shell.stdout.readline().split()
        assert said[:1] == ["ready"], said
        one = Running(shell, find_process(int(said[1])))
        try:
            yield one
        finally:
            if shell.poll() is None:
                one.process.place.exists() and subprocess.run(["kill", "-9", str(one.pid)])
                shell.communicate()


def has_opened(pid: int, path: Path) -> bool:
    """Test whether a process has a file open."""
    found = []
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it is closed meanwhile
            found.append(one.readlink())
    return path in found
